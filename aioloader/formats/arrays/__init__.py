"""Arrays in memory, and the files of MNIST and CIFAR."""
