import atexit
class D:
    def __del__(self):
        while True:
            try:
                while True: pass
            except BaseException: pass
import sys
sys.modules["__main__"].keep = D()
atexit.register(D().__del__)
