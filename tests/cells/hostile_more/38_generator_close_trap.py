def g():
    while True:
        try:
            yield
        except GeneratorExit:
            while True:
                try:
                    while True: pass
                except BaseException: pass
x = g(); next(x)
raise MemoryError
