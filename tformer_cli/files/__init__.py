"""What every part does with files: write aside and rename, read regular ones only."""
