import logging, warnings, sys
logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s:%(message)s")
log = logging.getLogger("agent")
log.debug("no"); log.info("start %d", 3); log.warning("w")
try:
    1 / 0
except ZeroDivisionError:
    log.error("failed: %s", sys.exc_info()[0].__name__)
with warnings.catch_warnings(record=True) as w:
    warnings.simplefilter("always")
    warnings.warn("old", DeprecationWarning)
    print(len(w), w[0].category.__name__, w[0].message)
print("to err", file=sys.stderr)
sys.stdout.write("raw\n"); sys.stdout.flush()
# %%
log.info("second cell"); log.setLevel(logging.ERROR); log.info("silent")
with warnings.catch_warnings():
    warnings.simplefilter("error")
    try: warnings.warn("now an error")
    except UserWarning as e: print("caught", e)
log
