class Big:
    def __repr__(self):
        return "y" * (100 << 20)
Big()
