"""The dashboard: a Dash app over a folder of runs. It reads what the store wrote and computes no metric again."""
