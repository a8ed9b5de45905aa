//! Results as tables, for the terminal and the page.

use std::collections::BTreeSet;

use spillway_harness::{Grid, figure, percent};

use super::{
    account::Account,
    fault::Fault,
    machine::Conditions,
    matrix::Cell,
    results::{ResultOutcome, ResultRow, Results},
    slow::ratio,
    special,
};

/// Table with its title and note.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// Title.
    pub(crate) title: String,
    /// Meaning of the columns.
    pub(crate) note: &'static str,
    /// Table.
    pub(crate) grid: Grid,
}

/// Returns all tables that have rows.
pub(crate) fn sections(results: &Results) -> Vec<Section> {
    let mut sections = Vec::new();
    if !results.matrix.is_empty() {
        sections.push(overview(results));
        for policy in policies(results) {
            sections.push(latencies(results, policy));
            sections.push(fates(results, policy));
        }
    }
    sections.extend(special::sections(results));
    sections
}

fn policies(results: &Results) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let names = results.matrix.iter().map(|row| row.policy.as_str());
    names.filter(|name| seen.insert(*name)).collect()
}

fn faults(results: &Results) -> BTreeSet<Fault> {
    results.matrix.iter().map(|row| row.about).collect()
}

/// Builds the table of policies (rows) and faults (columns).
fn overview(results: &Results) -> Section {
    let faults = faults(results);
    let names = std::iter::once("policy".to_owned()).chain(faults.iter().map(|fault| fault.name()));
    let mut grid = Grid::new(names);
    for policy in policies(results) {
        let of = |fault: &Fault| {
            let is_it = |row: &&ResultRow<Fault, Cell>| row.policy == policy && row.about == *fault;
            results.matrix.iter().find(is_it).map_or_else(String::new, |row| glance(&row.outcome))
        };
        grid.push(std::iter::once(policy.to_owned()).chain(faults.iter().map(of)).collect());
    }
    Section {
        title: "Policy × fault".to_owned(),
        note: "Each cell: p99 of the whole reply once the fault has settled, over the p99 before \
               it; then the errors of the whole run, of which those after `!` have no excuse. \
               `L` lost, `D` doubled, `?` a run on a saturated machine.",
        grid,
    }
}

fn glance(outcome: &ResultOutcome<Cell>) -> String {
    let cell = match outcome {
        ResultOutcome::Measured(cell) => cell,
        ResultOutcome::Unavailable(_) => return "n/a".to_owned(),
        ResultOutcome::Broken(_) => return "broken".to_owned(),
    };
    let account = &cell.account;
    let slower = ratio(cell.during.total_p99_ms, cell.before.total_p99_ms);
    let mut text = format!("{}×", figure(slower, 1));
    let clear = account.excused + account.inexcusable;
    if clear > 0 {
        text.push_str(&format!(" {clear}"));
    }
    for (mark, count) in [('!', account.inexcusable), ('L', account.lost), ('D', account.doubled)] {
        if count > 0 {
            text.push_str(&format!(" {mark}{count}"));
        }
    }
    text + mark(&cell.conditions)
}

fn mark(conditions: &Conditions) -> &'static str {
    if conditions.spoilt.is_empty() { "" } else { " ?" }
}

/// Builds a policy's table of latencies, one row for each fault.
fn latencies(results: &Results, policy: &str) -> Section {
    let mut grid = Grid::new([
        "fault",
        "first byte before",
        "transition",
        "during",
        "after",
        "total before",
        "transition",
        "during",
        "after",
        "CPU",
        "own",
    ]);
    fill(&mut grid, results, policy, |cell| {
        let phases = [&cell.before, &cell.transition, &cell.during, &cell.after];
        let first_bytes = phases.map(|at| pair(at.first_byte_p50_ms, at.first_byte_p99_ms));
        let totals = phases.map(|at| pair(at.total_p50_ms, at.total_p99_ms));
        let mut cells = [first_bytes, totals].concat();
        cells.extend([cpu(&cell.conditions), percent(Some(cell.conditions.own_mean))]);
        cells
    });
    Section {
        title: format!("{policy}: latency"),
        note: "p50/p99 in milliseconds, from the time when requests were due, of whole replies. \
               Transition: the first seconds of the fault. CPU: mean of all cores, by everybody; \
               own: by load, gateway and replicas.",
        grid,
    }
}

/// Builds a policy's table of requests and the victim, one row for each fault.
fn fates(results: &Results, policy: &str) -> Section {
    let mut grid = Grid::new([
        "fault",
        "errors",
        "no excuse",
        "lost",
        "doubled",
        "retries",
        "share before",
        "in fault",
        "settled",
        "out s",
        "last s",
        "back s",
        "by kind",
    ]);
    fill(&mut grid, results, policy, |cell| {
        let account = &cell.account;
        let clear = account.excused + account.inexcusable;
        let counts = [clear, account.inexcusable, account.lost, account.doubled];
        let mut cells: Vec<String> = counts.iter().map(usize::to_string).collect();
        cells.push(retries(cell.retries));
        cells.extend([cell.share_before, cell.share_fault, cell.share_during].map(percent));
        cells.extend([cell.out_s, cell.last_s, cell.back_s].map(|seconds| figure(seconds, 1)));
        cells.push(kinds(account));
        cells
    });
    Section {
        title: format!("{policy}: requests and the victim"),
        note: "Share: of the requests that replicas received, the victim's. Out: from then on it \
               got no more than a trial request or 5 % of its former share in any second (a slowed \
               one: a quarter, twice what it can still do); last: its last request before recovery; back: from recovery (or \
               joining) to the first second with 80 % of its share. A dash: not within the run, \
               or not asked. A replica whose port is closed receives nothing; what it costs shows \
               in retries and errors.",
        grid,
    }
}

fn fill(grid: &mut Grid, results: &Results, policy: &str, cells: impl Fn(&Cell) -> Vec<String>) {
    for row in results.matrix.iter().filter(|row| row.policy == policy) {
        let mut line = vec![row.about.name()];
        match &row.outcome {
            ResultOutcome::Measured(cell) => line.extend(cells(cell)),
            ResultOutcome::Unavailable(_) | ResultOutcome::Broken(_) => {
                line.push(why(&row.outcome));
            }
        }
        grid.push(line);
    }
}

pub(super) fn retries(retries: Option<u64>) -> String {
    retries.map_or_else(|| "–".to_owned(), |retries| retries.to_string())
}

pub(super) fn pair(p50_ms: Option<f64>, p99_ms: Option<f64>) -> String {
    format!("{}/{}", figure(p50_ms, 0), figure(p99_ms, 0))
}

pub(super) fn cpu(conditions: &Conditions) -> String {
    percent(Some(conditions.busy_mean)) + mark(conditions)
}

pub(super) fn kinds(account: &Account) -> String {
    let kinds = account.errors.iter().map(|(kind, count)| format!("{count} × {kind}"));
    kinds.collect::<Vec<_>>().join(", ")
}

pub(super) fn why<T>(outcome: &ResultOutcome<T>) -> String {
    match outcome {
        ResultOutcome::Measured(_) => String::new(),
        ResultOutcome::Unavailable(why) => format!("n/a: {why}"),
        ResultOutcome::Broken(why) => format!("broken: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            account::{Inexcusable, Why},
            results::tests as by_hand,
        },
        *,
    };

    #[test]
    fn a_glance_shows_what_must_not_be_overlooked() {
        let glance_at = |account| glance(&ResultOutcome::Measured(by_hand::cell(account, &[])));
        let clean = Account { sent: 9, complete: 9, ..Account::default() };
        assert_eq!(glance_at(clean), "2.5×");
        let bad = Account { excused: 3, inexcusable: 2, lost: 1, doubled: 4, ..Account::default() };
        assert_eq!(glance_at(bad), "2.5× 5 !2 L1 D4");
        assert_eq!(glance(&ResultOutcome::Unavailable(String::new())), "n/a");
    }

    #[test]
    fn every_row_of_the_results_stands_in_a_table() {
        let row =
            |policy: &str, about, outcome| ResultRow { policy: policy.to_owned(), about, outcome };
        let error = Inexcusable {
            id: "fault-0000007".to_owned(),
            sent_s: 1.25,
            error: "503 no_replica".to_owned(),
            replica: None,
            why: Why::NeverReceived,
        };
        let account = Account { inexcusable: 1, listed: vec![error], ..Account::default() };
        let mut results = by_hand::nothing();
        results.matrix = vec![
            row("random", Fault::Hung, ResultOutcome::Measured(by_hand::cell(account, &[]))),
            row("random", Fault::Killed, ResultOutcome::Broken("it ended".to_owned())),
            row("other", Fault::Killed, ResultOutcome::Unavailable("not there".to_owned())),
        ];
        results.slow = vec![by_hand::slow_row("random", 3.25, &["busy"])];
        let sections = sections(&results);
        let titles: Vec<&str> = sections.iter().map(|section| section.title.as_str()).collect();
        let expected = [
            "Policy × fault",
            "random: latency",
            "random: requests and the victim",
            "other: latency",
            "other: requests and the victim",
            "One of four replicas ten times slower",
            "Errors without excuse",
        ];
        assert_eq!(titles, expected);
        let text = |index: usize| sections[index].grid.text();
        assert!(text(1).contains("–/250"), "{}", text(1));
        for index in [1, 2] {
            assert!(text(index).contains("broken: it ended"), "{}", text(index));
        }
        assert!(text(3).contains("n/a: not there") && text(4).contains("n/a: not there"));
        for part in ["25 %", "10 %", "1.5", "2.5"] {
            assert!(text(2).contains(part), "{}", text(2));
        }
        assert!(text(5).contains("3.25") && text(5).contains("contrast"));
        assert!(text(5).contains("0 % ?"), "an invalid run is marked: {}", text(5));
        let listed = "random × hung  fault-0000007       1.25     none  503 no_replica";
        assert!(text(6).contains(listed), "{}", text(6));
    }
}
