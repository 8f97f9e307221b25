"""Scripts that the original does not have, and the commands of a package."""
