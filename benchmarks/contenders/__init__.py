"""One file per contender, each imported only inside its own environment. `contract` says what such a file defines."""
