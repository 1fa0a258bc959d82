"""The image service: images on demand for async programs, made by the loader's executors.

The path of an image: `requests` asks for it, `references` accepts and reads what the caller passed, `dispatcher`
lets it in and connects the others, `schedule` decides what is next, `making` has an executor decode and process it, and
`async_service` returns the image. `engine` makes these parts, `mapping` and `packing` take many prompts, and
`sync_service` is the blocking twin. Workers import one module of this package, so nothing is imported here.
"""
