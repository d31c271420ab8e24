import sys, io
class Out(io.TextIOBase):
    def write(self, s): raise SystemExit("no")
    def take(self): raise SystemError
sys.stdout = sys.stderr = Out()
sys.displayhook = sys.excepthook = sys.unraisablehook = None
try: print("x")
except SystemExit: pass
1/0
