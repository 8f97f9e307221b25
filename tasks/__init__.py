"""What each task says of itself: its data, its outputs, its scores."""
