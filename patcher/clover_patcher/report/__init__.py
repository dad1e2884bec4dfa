"""What a run says about itself: reasons in words, and the log of every candidate."""
