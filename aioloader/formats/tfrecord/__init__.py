"""TFRecord files of `tf.train.Example`."""
