import signal
for n in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(n, lambda *a: None)
    except (OSError, ValueError):
        pass
try:
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
except OSError:
    pass
while True:
    try:
        while True: pass
    except BaseException: pass
