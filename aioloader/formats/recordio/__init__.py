"""RecordIO files of images and labels."""
