//! Instructions of each stage of a request, counted by callgrind.
//!
//! The dev build is counted: nothing is inlined there, so each stage is counted separately. A
//! release build takes about a tenth of it. Growth here shows up there, too, though to a lesser
//! degree.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::{SHAPES, Shape, with_each_shape};

/// Requests before the count.
const WARM_UP: usize = 5;
const COUNTED: usize = 10;
/// Counts of all shapes, at most.
const COUNTS_MAX: usize = 3;
/// Percent that a stage may take above its budget.
const ABOVE_PERCENT: u64 = 2;
/// Percent that a stage may take below its budget: a clean build takes up to 2 % less than one that grew.
const BELOW_PERCENT: u64 = 5;
/// Instructions below which a stage is not compared by percent.
const SMALL: u64 = 20_000;

/// Makes the test below write the file instead of comparing it.
const WRITE: &str = "SPILLWAY_BUDGETS_WRITE";

/// A part of the data path: a function, with all that it calls.
struct Stage {
    name: &'static str,
    function: &'static str,
    /// True if [`BY_TIME`] is called in it.
    is_timed: bool,
}

/// Work that a request does for all when its time has come. It is left out, since how often it comes
/// depends on the machine.
const BY_TIME: &str = "spillway_view::tenants::Tenants::judge";

/// A stage may be part of another.
const STAGES: [Stage; 10] = [
    Stage {
        name: "client's connection",
        function: "<hyper::server::conn::http1::Connection<I,S> as core::future::future::Future>::poll",
        is_timed: true,
    },
    Stage {
        name: "client's connection, HTTP/2",
        function: "<hyper::server::conn::http2::Connection<I,S,E> as core::future::future::Future>::poll",
        is_timed: false,
    },
    Stage {
        name: "request",
        function: "spillway_proxy::request::exchange::Exchange::run::{{closure}}",
        is_timed: true,
    },
    Stage {
        name: "body read and understood",
        function: "spillway_request::prepare::prepare::{{closure}}",
        is_timed: false,
    },
    Stage {
        name: "charged to limits",
        function: "spillway_proxy::request::charge::Charge::take",
        is_timed: false,
    },
    Stage {
        name: "replica asked",
        function: "spillway_proxy::request::exchange::Exchange::ask::{{closure}}",
        is_timed: true,
    },
    Stage {
        name: "decision",
        function: "spillway_journey::journey::Journey::next",
        is_timed: false,
    },
    Stage {
        name: "reply made",
        function: "spillway_proxy::request::deliver::<impl spillway_proxy::request::exchange::Exchange>::deliver",
        is_timed: false,
    },
    Stage {
        name: "reply relayed",
        function: "<spillway_proxy::relay::body::ReplyBody as http_body::Body>::poll_frame",
        is_timed: false,
    },
    Stage {
        name: "request sent and head read",
        function: "spillway_upstream::http1::Http1Connection::poll_head",
        is_timed: false,
    },
];

/// Instructions of a request by shape and stage.
type Counts = BTreeMap<String, BTreeMap<String, u64>>;

fn budgets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data_path/instructions.json")
}

#[test]
fn a_request_of_each_shape_keeps_to_its_instructions() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: no valgrind here (Debian: apt-get install valgrind)");
        return;
    }
    let counted = count_steadily();
    let is_seen = counted.values().all(|stages| stages["request"] > 0);
    assert!(is_seen, "functions have other names than in STAGES: {counted:?}");
    if std::env::var_os(WRITE).is_some() {
        let text = serde_json::to_string_pretty(&counted).expect("JSON");
        std::fs::write(budgets(), text + "\n").expect("is written");
        return;
    }
    let text = std::fs::read_to_string(budgets()).expect("budgets");
    let budgets: Counts = serde_json::from_str(&text).expect("JSON");
    let wrong = differences(&budgets, &counted);
    assert!(
        wrong.is_empty(),
        "{wrong}\nIf it is meant, say why in the commit, and write the budgets anew: {WRITE}=1 cargo \
         nextest run --workspace --test data_path instructions"
    );
}

/// Lists each stage that takes more than its budget, or so much less that the budget would not
/// preserve the improvement.
fn differences(budgets: &Counts, counted: &Counts) -> String {
    let mut text = String::new();
    for (shape, stages) in counted {
        for (stage, now) in stages {
            let before = budgets.get(shape).and_then(|stages| stages.get(stage)).copied();
            let before = before.unwrap_or_default();
            // The other node of a forwarded request wakes this one more often on a busy machine.
            let times = if shape.ends_with("forwarded") { 4 } else { 1 };
            let percent = times * if *now > before { ABOVE_PERCENT } else { BELOW_PERCENT };
            if now.abs_diff(before) > before.max(SMALL) * percent / 100 {
                let percent = (*now as f64 / before.max(1) as f64 - 1.0) * 100.0;
                writeln!(text, "{shape}, {stage}: {before} -> {now} ({percent:+.1} %)")
                    .expect("text");
            }
        }
    }
    text
}

/// Counts until all stages keep to their budgets, a few times at most, and returns the least of each. A
/// busy machine wakes a task more often, so a single count may be too high and is never too low.
fn count_steadily() -> Counts {
    let text = std::fs::read_to_string(budgets()).unwrap_or_default();
    let budgets: Counts = serde_json::from_str(&text).unwrap_or_default();
    let mut least = count();
    for _ in 1..COUNTS_MAX {
        if differences(&budgets, &least).is_empty() {
            break;
        }
        for (shape, stages) in count() {
            for (stage, now) in stages {
                let before = least.entry(shape.clone()).or_default().entry(stage).or_insert(now);
                *before = now.min(*before);
            }
        }
    }
    least
}

/// Counts the instructions of a request of each shape.
fn count() -> Counts {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let ran = Command::new("valgrind")
        .arg("--tool=callgrind")
        .args(["toggle-collect", "dump-after"].map(|option| format!("--{option}={COUNTED_IN}")))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("this test"))
        .args(["--ignored", "--exact", "instructions::ask"])
        .output()
        .expect("valgrind");
    let said = [&ran.stdout, &ran.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(ran.status.success(), "{}", said.concat());
    // A file for each call of the function.
    let counted = |(shape, call): (&Shape, usize)| {
        let mut stages = stages(&annotated(&out.with_extension(call.to_string())));
        // The cost of weighing a region depends on its latest report.
        if shape.is_forwarded {
            stages.remove("decision");
        }
        (shape.name.to_owned(), stages)
    };
    SHAPES.iter().zip(1..).map(counted).collect()
}

/// Returns the instructions of one request by stage.
fn stages(profile: &str) -> BTreeMap<String, u64> {
    let of = |function: &str| inclusive(profile, function).unwrap_or_default();
    let by_time = of(BY_TIME);
    let each = |stage: &Stage| {
        let by_time = if stage.is_timed { by_time } else { 0 };
        // A shape of the other protocol does not call it.
        let total = of(stage.function).saturating_sub(by_time);
        (stage.name.to_owned(), total / COUNTED as u64)
    };
    STAGES.iter().map(each).collect()
}

/// Returns callgrind's table of functions.
fn annotated(file: &Path) -> String {
    let done = Command::new("callgrind_annotate")
        .args(["--inclusive=yes", "--threshold=100", "--auto=no"])
        .arg(file)
        .output()
        .expect("callgrind_annotate");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Returns the instructions of a function with all that it calls, by a line such as
/// `1,234 (5.67%)  file:function [program]`.
fn inclusive(profile: &str, function: &str) -> Option<u64> {
    let line = profile.lines().find(|line| {
        let name = line.split_once(')').and_then(|(_, rest)| rest.trim_start().split_once(':'));
        let name = name.map(|(_, name)| name.rsplit_once(" [").map_or(name, |(name, _)| name));
        name.is_some_and(|name| name.trim_end() == function)
    })?;
    let digits: String = line.trim_start().chars().take_while(|c| *c != ' ').collect();
    digits.replace(',', "").parse().ok()
}

/// Sends requests for the test above, in a process that callgrind watches.
#[test]
#[ignore = "is run by another test, in a process of its own"]
fn ask() {
    with_each_shape(|_, ask| {
        ask(WARM_UP);
        counted_requests(ask);
    });
}

/// The function that callgrind counts in.
const COUNTED_IN: &str = concat!(module_path!(), "::counted_requests");

/// Sends the requests that are counted.
#[inline(never)]
fn counted_requests(ask: &mut dyn FnMut(usize)) {
    ask(COUNTED);
}

#[test]
fn what_grew_or_shrank_is_named() {
    let counts = |decision: u64| -> Counts {
        let stages = [("decision".to_owned(), decision), ("charged".to_owned(), 300)];
        [("1 KB".to_owned(), stages.into())].into()
    };
    assert_eq!(differences(&counts(100_000), &counts(101_900)), "");
    assert_eq!(differences(&counts(100_000), &counts(96_000)), "");
    let grown = differences(&counts(100_000), &counts(103_000));
    assert_eq!(grown, "1 KB, decision: 100000 -> 103000 (+3.0 %)\n");
    assert!(differences(&counts(100_000), &counts(90_000)).contains("(-10.0 %)"));
}

#[test]
fn a_table_of_callgrind_is_read() {
    let table = "Ir\n---\n1,234,567 (10.00%)  src/a.rs:a::b::{{closure}} [/bin/x]\n\
                 89 ( 0.01%)  a::b\n7 ( 0.01%)  src/c.rs:<a::C<I,S> as d::E>::poll\n";
    assert_eq!(inclusive(table, "a::b::{{closure}}"), Some(1_234_567));
    assert_eq!(inclusive(table, "<a::C<I,S> as d::E>::poll"), Some(7));
    assert_eq!(inclusive(table, "z"), None);
}
