from datetime import datetime, timezone, timedelta
from zoneinfo import ZoneInfo
meet = datetime(2025, 3, 30, 1, 30, tzinfo=ZoneInfo("Europe/Berlin"))
print(meet.isoformat(), (meet + timedelta(hours=1)).isoformat(), meet.astimezone(timezone.utc))
for z in ("America/New_York", "Asia/Kolkata", "Australia/Sydney", "UTC"):
    print(z, meet.astimezone(ZoneInfo(z)).strftime("%Y-%m-%d %H:%M %Z %z"))
try:
    ZoneInfo("Mars/Olympus")
except Exception as e:
    print(type(e).__name__, e)
print(datetime.fromtimestamp(0, tz=timezone.utc), datetime.fromtimestamp(1e9), datetime(2025, 1, 1).timestamp())
print(timezone(timedelta(hours=5, minutes=30)), timedelta(days=-1, seconds=5), datetime.max)
meet
