"""Format zip: archives of images in folders of their classes."""
