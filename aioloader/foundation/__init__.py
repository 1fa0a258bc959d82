"""Parts that several subsystems share: types, checks, trees, threads, notifications, and limits of this host."""
