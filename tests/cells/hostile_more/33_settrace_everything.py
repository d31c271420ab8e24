import sys, threading
def t(frame, event, arg):
    raise SystemError("traced")
threading.settrace(t); threading.setprofile(t)
sys.settrace(t)
sys.setprofile(t)
