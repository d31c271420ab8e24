class Loop(Exception):
    def __str__(self):
        while True:
            try:
                while True: pass
            except BaseException: pass
raise Loop
