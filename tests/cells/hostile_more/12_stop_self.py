import os, signal, ctypes
for f in (lambda: os.kill(os.getpid(), signal.SIGSTOP), lambda: signal.raise_signal(signal.SIGSTOP), lambda: os.killpg(0, signal.SIGKILL), lambda: os.kill(-1, signal.SIGKILL), lambda: os.kill(1, 0), lambda: ctypes.CDLL(None).abort):
    try:
        f()
    except OSError as e:
        print(e)
