"""InsightFace's folders and files of pairs."""
