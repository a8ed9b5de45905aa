//! List of all cells.

use super::faults::{CUT, LIARS, LOST_REGION, LOST_REPLICA, ONE_WAY, SLOW_PATHS};
use super::machine::Machine;
use super::map::Map;
use super::{Cell, END_S, REPLICAS, Work};
use crate::Fault;
use crate::Operator;
use crate::WorkloadKind;
use crate::workload::{Course, Task};

const CHAT: Task = Task::Conversation;
const TREE: Task = Task::Tree { branches: 2 };
const AGENT: Task = Task::Agent;
const WIDE_TREE: Task = Task::Tree { branches: 4 };

const fn documents(shared: f64) -> Task {
    Task::Documents { shared }
}

const fn cell(
    (name, group): (&'static str, &'static str),
    about: &'static str,
    map: Map,
    work: Work,
) -> Cell {
    Cell {
        name,
        about,
        group,
        map,
        work,
        machine: Machine::L4,
        replicas: REPLICAS,
        end_s: END_S,
        faults: &[],
        operator: NOTHING_SET,
        is_slow: false,
    }
}

const fn slow(name: &'static str, about: &'static str, work: Work) -> Cell {
    Cell { is_slow: true, ..cell((name, "slow"), about, Map::Three, work) }
}

/// Returns a cell of a recorded trace.
const fn trace(name: &'static str, about: &'static str, work: Work) -> Cell {
    Cell { machine: Machine::A100, ..cell((name, "trace"), about, Map::Three, work) }
}

/// Returns a cell of conversations at 0.7 of the full load, with faults.
const fn broken(name: &'static str, about: &'static str, faults: &'static [Fault]) -> Cell {
    let work = open(CHATS, 0.7, Course::Steady);
    Cell { faults, ..cell((name, "faults"), about, Map::Three, work) }
}

/// Returns a cell in which not all can be served while something is broken, and whose operator has set
/// what requests are shed by.
const fn broken_full(
    name: &'static str,
    about: &'static str,
    work: Work,
    faults: &'static [Fault],
) -> Cell {
    Cell { faults, operator: PROMPTS_SET, ..cell((name, "faults"), about, Map::Three, work) }
}

/// Settings of a cell whose operator sets nothing.
const NOTHING_SET: Operator = Operator::SETS_NOTHING;

/// Settings for system prompts on an L4: with more requests in flight tokens come later than clients
/// want, and a first token that is predicted after half of the time that clients want to wait is
/// late often enough.
const PROMPTS_SET: Operator =
    Operator { slo_ms: Some(500), connections_max: Some(104), ..NOTHING_SET };

const fn closed(clients: &'static [(usize, Task)]) -> Work {
    Work::Closed(clients)
}

const fn open(kind: WorkloadKind, load: f64, course: Course) -> Work {
    Work::Open { kind, loads: [load; 3], course }
}

/// Returns the load of three regions of which the first has three times as much as each other.
const fn skewed(kind: WorkloadKind, load: f64) -> Work {
    let loads = [1.8 * load, 0.6 * load, 0.6 * load];
    Work::Open { kind, loads, course: Course::Steady }
}

/// Returns the load that is at 0.6 of the full load before it is at this part of it.
const fn ramp(load: f64) -> Work {
    open(PROMPTS, load, Course::Ramp { before: 0.6 / load })
}

use WorkloadKind::{Chats as CHATS, Documents as DOCUMENTS, SystemPrompts as PROMPTS};

/// Cells of the comparison.
pub(super) const CELLS: &[Cell] = &[
    cell(
        ("chat-50", "equal"),
        "conversations of 50 clients in each of 3 regions",
        Map::Three,
        closed(&[(50, CHAT), (50, CHAT), (50, CHAT)]),
    ),
    cell(
        ("chat-40-30-30", "equal"),
        "conversations of 40, 30 and 30 clients",
        Map::Three,
        closed(&[(40, CHAT), (30, CHAT), (30, CHAT)]),
    ),
    cell(
        ("chat-80", "equal"),
        "conversations of 80 clients in each of 3 regions",
        Map::Three,
        closed(&[(80, CHAT), (80, CHAT), (80, CHAT)]),
    ),
    cell(
        ("no-reuse", "equal"),
        "prompts without any repetition, of 50 clients in each of 3 regions",
        Map::Three,
        closed(&[(50, Task::Alone), (50, Task::Alone), (50, Task::Alone)]),
    ),
    cell(
        ("trees", "trees"),
        "trees of thought of 15 requests, of 40, 20 and 20 clients",
        Map::Three,
        closed(&[(40, TREE), (20, TREE), (20, TREE)]),
    ),
    cell(
        ("mixed-trees", "trees"),
        "trees of 85 requests of 2 clients, of 15 requests of 20 clients in each other region",
        Map::Three,
        closed(&[(2, WIDE_TREE), (20, TREE), (20, TREE)]),
    ),
    cell(
        ("skew-75-25-25", "skew"),
        "conversations of 75, 25 and 25 clients",
        Map::Three,
        closed(&[(75, CHAT), (25, CHAT), (25, CHAT)]),
    ),
    cell(
        ("skew-120-40-40", "skew"),
        "conversations of 120, 40 and 40 clients",
        Map::Three,
        closed(&[(120, CHAT), (40, CHAT), (40, CHAT)]),
    ),
    cell(
        ("2-regions-75-25", "skew"),
        "conversations of 75 and 25 clients in 2 regions",
        Map::Two,
        closed(&[(75, CHAT), (25, CHAT)]),
    ),
    cell(
        ("2-regions-120-40", "skew"),
        "conversations of 120 and 40 clients in 2 regions",
        Map::Two,
        closed(&[(120, CHAT), (40, CHAT)]),
    ),
    cell(
        ("6-regions", "skew"),
        "conversations of 130, 90, 40, 20, 10 and 10 clients in 6 regions",
        Map::Six,
        closed(&[(130, CHAT), (90, CHAT), (40, CHAT), (20, CHAT), (10, CHAT), (10, CHAT)]),
    ),
    cell(
        ("share-2.5", "share"),
        "long prompts, of which 2.5 % begin with text of all regions",
        Map::Three,
        closed(&[(50, documents(0.025)), (50, documents(0.025)), (50, documents(0.025))]),
    ),
    cell(
        ("share-10", "share"),
        "long prompts, of which 10 % begin with text of all regions",
        Map::Three,
        closed(&[(50, documents(0.1)), (50, documents(0.1)), (50, documents(0.1))]),
    ),
    cell(
        ("share-50", "share"),
        "long prompts, of which 50 % begin with text of all regions",
        Map::Three,
        closed(&[(50, documents(0.5)), (50, documents(0.5)), (50, documents(0.5))]),
    ),
    cell(
        ("6-regions-share-50", "share"),
        "long prompts, 50 % with text of all regions, of 130, 90, 40, 20, 10 and 10 clients",
        Map::Six,
        closed(&[
            (130, documents(0.5)),
            (90, documents(0.5)),
            (40, documents(0.5)),
            (20, documents(0.5)),
            (10, documents(0.5)),
            (10, documents(0.5)),
        ]),
    ),
    slow(
        "slow-chat-50",
        "as chat-50, with one replica of each region at half speed",
        closed(&[(50, CHAT), (50, CHAT), (50, CHAT)]),
    ),
    slow(
        "slow-skew-75-25-25",
        "as skew-75-25-25, with one replica of each region at half speed",
        closed(&[(75, CHAT), (25, CHAT), (25, CHAT)]),
    ),
    slow(
        "slow-share-10",
        "as share-10, with one replica of each region at half speed",
        closed(&[(50, documents(0.1)), (50, documents(0.1)), (50, documents(0.1))]),
    ),
    slow(
        "slow-trees",
        "as trees, with one replica of each region at half speed",
        closed(&[(40, TREE), (20, TREE), (20, TREE)]),
    ),
    cell(
        ("chats-0.8", "load"),
        "conversations at 0.8 of the full load",
        Map::Three,
        open(CHATS, 0.8, Course::Steady),
    ),
    cell(
        ("chats-0.9", "load"),
        "conversations at 0.9 of the full load",
        Map::Three,
        open(CHATS, 0.9, Course::Steady),
    ),
    cell(
        ("chats-1.0", "load"),
        "conversations at the full load",
        Map::Three,
        open(CHATS, 1.0, Course::Steady),
    ),
    cell(
        ("chats-1.1", "load"),
        "conversations at 1.1 of the full load",
        Map::Three,
        open(CHATS, 1.1, Course::Steady),
    ),
    cell(
        ("chats-skew-0.7", "load"),
        "conversations at 0.7 of the full load, three times as many in one region as in each other",
        Map::Three,
        skewed(CHATS, 0.7),
    ),
    cell(
        ("chats-skew-0.9", "load"),
        "conversations at 0.9 of the full load, three times as many in one region as in each other",
        Map::Three,
        skewed(CHATS, 0.9),
    ),
    cell(
        ("documents-0.7", "load"),
        "questions about documents at 0.7 of the full load",
        Map::Three,
        open(DOCUMENTS, 0.7, Course::Steady),
    ),
    cell(
        ("documents-0.9", "load"),
        "questions about documents at 0.9 of the full load",
        Map::Three,
        open(DOCUMENTS, 0.9, Course::Steady),
    ),
    cell(
        ("prompts-0.75", "load"),
        "system prompts at 0.75 of the full load",
        Map::Three,
        open(PROMPTS, 0.75, Course::Steady),
    ),
    cell(
        ("prompts-0.8", "load"),
        "system prompts at 0.8 of the full load",
        Map::Three,
        open(PROMPTS, 0.8, Course::Steady),
    ),
    cell(
        ("prompts-0.85", "load"),
        "system prompts at 0.85 of the full load",
        Map::Three,
        open(PROMPTS, 0.85, Course::Steady),
    ),
    cell(
        ("prompts-0.9", "load"),
        "system prompts at 0.9 of the full load",
        Map::Three,
        open(PROMPTS, 0.9, Course::Steady),
    ),
    cell(
        ("prompts-ramp-0.85", "load"),
        "system prompts at 0.85 of the full load, after 120 s at 0.6 of it",
        Map::Three,
        ramp(0.85),
    ),
    cell(
        ("prompts-ramp-0.9", "load"),
        "system prompts at 0.9 of the full load, after 120 s at 0.6 of it",
        Map::Three,
        ramp(0.9),
    ),
    cell(
        ("prompts-ramp-0.95", "load"),
        "system prompts at 0.95 of the full load, after 120 s at 0.6 of it",
        Map::Three,
        ramp(0.95),
    ),
    cell(
        ("prompts-skew-0.7", "load"),
        "system prompts at 0.7 of the full load, three times as many in one region as in others",
        Map::Three,
        skewed(PROMPTS, 0.7),
    ),
    trace(
        "mooncake-1",
        "conversations of Mooncake at their speed, on A100 replicas",
        Work::Mooncake { speed: 1.0 },
    ),
    trace(
        "mooncake-1.5",
        "conversations of Mooncake at 1.5 times their speed, on A100 replicas",
        Work::Mooncake { speed: 1.5 },
    ),
    trace(
        "mooncake-2",
        "conversations of Mooncake at twice their speed, on A100 replicas",
        Work::Mooncake { speed: 2.0 },
    ),
    trace(
        "mooncake-2.5",
        "conversations of Mooncake at 2.5 times their speed, on A100 replicas",
        Work::Mooncake { speed: 2.5 },
    ),
    trace(
        "azure-code-1",
        "completions of code of Azure at their speed, on A100 replicas",
        Work::AzureCode { speed: 1.0 },
    ),
    trace(
        "azure-code-2.5",
        "completions of code of Azure at 2.5 times their speed, on A100 replicas",
        Work::AzureCode { speed: 2.5 },
    ),
    trace(
        "azure-code-5",
        "completions of code of Azure at five times their speed, on A100 replicas",
        Work::AzureCode { speed: 5.0 },
    ),
];

/// Cells that show how soon an exceptional load is over, and overload.
pub(super) const BESIDES: &[Cell] = &[
    Cell {
        machine: Machine::A100,
        ..cell(
            ("flash-crowd", "crowd"),
            "conversations of 150 clients in each of 3 regions, and for 30 s 6 questions a second in each \
             about one document of 30,000 tokens, on A100 replicas",
            Map::Three,
            Work::Crowd(&[(150, CHAT), (150, CHAT), (150, CHAT)]),
        )
    },
    Cell {
        machine: Machine::H100,
        ..cell(
            ("agents-full", "agents"),
            "30 agents in each of 3 regions, whose contexts grow to 100,000 tokens and together take a \
             little more than all caches, on H100 replicas",
            Map::Three,
            closed(&[(30, AGENT), (30, AGENT), (30, AGENT)]),
        )
    },
    cell(
        ("prompts-burst-0.7", "recovery"),
        "system prompts at 0.7 of the full load, with 20 s of twice as many",
        Map::Three,
        open(PROMPTS, 0.7, Course::Burst),
    ),
    cell(
        ("prompts-cold-0.9", "recovery"),
        "system prompts at 0.9 of the full load, from cold caches on",
        Map::Three,
        open(PROMPTS, 0.9, Course::Cold),
    ),
    cell(
        ("chats-day-0.7", "recovery"),
        "conversations at 0.7 of the full load on the mean, with peaks from region to region",
        Map::Three,
        open(CHATS, 0.7, Course::Day),
    ),
    Cell {
        operator: Operator { slo_ms: Some(1_000), ..NOTHING_SET },
        ..cell(
            ("chats-1.2", "overload"),
            "conversations at 1.2 of the full load; Spillway has an objective of 1 s",
            Map::Three,
            open(CHATS, 1.2, Course::Steady),
        )
    },
    Cell {
        operator: PROMPTS_SET,
        ..cell(
            ("prompts-1.2", "overload"),
            "system prompts at 1.2 of the full load; Spillway has an objective of 500 ms and 104 slots a \
             replica",
            Map::Three,
            open(PROMPTS, 1.2, Course::Steady),
        )
    },
    broken("cut", "one region of three is cut off for a minute", CUT),
    Cell {
        faults: CUT,
        ..cell(
            ("cut-skew", "faults"),
            "one region of three, with three times the others' conversations, is cut off for a minute",
            Map::Three,
            skewed(CHATS, 0.7),
        )
    },
    broken("one-way-cut", "for a minute nothing gets from one region to another", ONE_WAY),
    broken("slow-paths", "all round trips take 10 times as long for a minute", SLOW_PATHS),
    broken("replica-lost", "one replica is gone for a minute", LOST_REPLICA),
    broken(
        "region-lost",
        "one region of three is gone for a minute, its clients move",
        LOST_REGION,
    ),
    broken_full(
        "cut-full",
        "one region, which has more system prompts than it can serve, is cut off; Spillway has an \
         objective of 500 ms and 104 slots a replica",
        skewed(PROMPTS, 0.7),
        CUT,
    ),
    broken_full(
        "region-lost-full",
        "as region-lost, with system prompts at 0.9 of the full load; Spillway has an objective of \
         500 ms and 104 slots a replica",
        open(PROMPTS, 0.9, Course::Steady),
        LOST_REGION,
    ),
    broken("liars", "one replica of each region reports for a minute that it is idle", LIARS),
    Cell {
        replicas: 20,
        end_s: 690.0,
        ..cell(
            ("50-regions", "scale"),
            "conversations at 0.7 of the full load in 50 regions of 20 replicas, 1 M requests",
            Map::Fifty,
            open(CHATS, 0.7, Course::Steady),
        )
    },
];
