//! Resource usage of process trees, from `/proc/<pid>/stat`.
//!
//! Written by hand: three fields of one line are needed, and the crate `procfs` parses all of `/proc`.

use std::{collections::BTreeMap, fs, io};

/// Largest excess of ticks over the exact time in seconds: one tick for each of a few processes.
const TICK_ERROR_S: f64 = 0.05;

/// Fields of a `/proc/<pid>/stat` line that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Process id of the parent.
    pub(crate) parent: u32,
    /// User and system time in clock ticks: of all threads, dead ones included, and of all children
    /// that the process has waited for.
    pub(crate) cpu_ticks: u64,
    /// Resident memory in pages.
    pub(crate) resident_pages: u64,
}

/// Resource usage of a process tree so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TreeUsage {
    /// User and system time of all threads in seconds, dead ones included. Each process is rounded
    /// to the kernel's tick, usually 10 ms.
    pub(crate) ticked_cpu_s: f64,
    /// CPU time of the living threads in seconds, exact to the nanosecond; 0 on kernels without
    /// scheduler statistics.
    pub(crate) exact_cpu_s: f64,
    /// Sum of resident memory in MiB; shared pages count once for each process.
    pub(crate) resident_mib: f64,
}

impl TreeUsage {
    /// Returns the CPU seconds between `before` and this.
    ///
    /// Uses the exact figure unless it is clearly below the ticks, which means that threads have
    /// ended in between and their time is missing. Ticks alone would be off by a quarter at 500
    /// requests per second, where a proxy uses little time.
    pub(crate) fn cpu_s_since(&self, before: &Self) -> f64 {
        let ticked = self.ticked_cpu_s - before.ticked_cpu_s;
        let exact = self.exact_cpu_s - before.exact_cpu_s;
        if exact < ticked - TICK_ERROR_S { ticked } else { exact }
    }
}

/// Processor time of the whole machine since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MachineTime {
    busy_ticks: u64,
    all_ticks: u64,
}

impl MachineTime {
    /// Reads the current times.
    pub(crate) fn now() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        Self::parse(&text).ok_or_else(|| io::Error::other("/proc/stat has no line for all cores"))
    }

    /// Returns the share of all cores that was busy since `before`; `None` if no tick has passed.
    pub(crate) fn busy_since(&self, before: &Self) -> Option<f64> {
        let all = self.all_ticks.saturating_sub(before.all_ticks);
        let busy = self.busy_ticks.saturating_sub(before.busy_ticks);
        (all > 0).then(|| busy as f64 / all as f64)
    }

    /// Returns the seconds of all cores together since `before`, busy or idle.
    pub(crate) fn cpu_s_since(&self, before: &Self) -> f64 {
        let ticks = self.all_ticks.saturating_sub(before.all_ticks);
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    /// Parses user, nice, system, idle, iowait, irq, softirq and steal. The later fields, guests'
    /// time, are part of user already.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields = line.split_ascii_whitespace().take(8).map(|field| field.parse::<u64>().ok());
        let ticks: Vec<u64> = fields.collect::<Option<_>>()?;
        let all_ticks: u64 = ticks.iter().sum();
        // A core that waits for a disk (iowait) is idle, too.
        let idle_ticks = ticks.get(3)? + ticks.get(4)?;
        Some(Self { busy_ticks: all_ticks - idle_ticks, all_ticks })
    }
}

/// Returns the usage of all descendants of `root`, without `root` itself.
pub(crate) fn descendants_usage(root: u32) -> io::Result<TreeUsage> {
    let stats = all_stats()?;
    Ok(usage_of(&stats, &descendants(&stats, root)))
}

/// Returns what [`descendants_usage`] does for each of `roots`, and reads `/proc` once for all.
pub(crate) fn each_descendants_usage(roots: &[u32]) -> io::Result<Vec<TreeUsage>> {
    let stats = all_stats()?;
    Ok(roots.iter().map(|root| usage_of(&stats, &descendants(&stats, *root))).collect())
}

/// Lists the processes below `root`.
pub(crate) fn descendants_of(root: u32) -> io::Result<Vec<u32>> {
    Ok(descendants(&all_stats()?, root))
}

/// Returns the usage of `root` and all its descendants.
pub(crate) fn tree_usage(root: u32) -> io::Result<TreeUsage> {
    let stats = all_stats()?;
    let mut processes = descendants(&stats, root);
    // The list may have been read after `root` ended, and `usage_of` needs every process in it.
    processes.extend(stats.contains_key(&root).then_some(root));
    Ok(usage_of(&stats, &processes))
}

fn usage_of(stats: &BTreeMap<u32, Stat>, processes: &[u32]) -> TreeUsage {
    let (mut ticks, mut nanos, mut pages) = (0, 0, 0);
    for process in processes {
        ticks += stats[process].cpu_ticks;
        pages += stats[process].resident_pages;
        nanos += threads_nanos(*process);
    }
    let page_bytes = rustix::param::page_size() as f64;
    TreeUsage {
        ticked_cpu_s: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        exact_cpu_s: nanos as f64 / 1e9,
        resident_mib: pages as f64 * page_bytes / f64::from(1 << 20),
    }
}

/// Sums the CPU time of a process's living threads, from the first field of `schedstat`.
fn threads_nanos(process: u32) -> u64 {
    // The process has ended since the list was read; its ticks still count.
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let nanos = threads.flatten().filter_map(|thread| {
        let line = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    nanos.sum()
}

/// Reads the line of every process. A process that ends during the read is left out.
fn all_stats() -> io::Result<BTreeMap<u32, Stat>> {
    let mut stats = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Fails if the process has ended since.
        let Ok(line) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(stat) = parse_stat(&line) {
            stats.insert(process, stat);
        }
    }
    Ok(stats)
}

/// Parses one line. Fields count from the last `)`, because the command may contain spaces and
/// parentheses.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, after_command) = line.rsplit_once(')')?;
    // Field 3 of proc(5), the state, is the first here.
    let fields: Vec<&str> = after_command.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(number(4)?).ok()?,
        cpu_ticks: number(14)? + number(15)? + number(16)? + number(17)?,
        resident_pages: number(24)?,
    })
}

/// Lists all processes below `root`, each once.
fn descendants(stats: &BTreeMap<u32, Stat>, root: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for (process, stat) in stats {
            // A process that names itself as parent would be found forever.
            if stat.parent == parent && *process != parent {
                found.push(*process);
                open.push(*process);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let line = "4242 (ng) x (1) S 41 4242 4242 0 -1 4194560 900 0 0 0 17 25 3 4 20 0 3 0 \
                    8800 12345678 512 18446744073709551615 1 1 0 0 0 0 0 0 0\n";
        let expected = Stat { parent: 41, cpu_ticks: 49, resident_pages: 512 };
        assert_eq!(parse_stat(line), Some(expected));
    }

    #[test]
    fn a_cut_line_is_no_stat() {
        assert_eq!(parse_stat("1 (a) S 0 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn the_machine_is_busy_unless_idle_or_waiting_for_a_disk() {
        let parse = |text: &str| MachineTime::parse(text);
        let before = parse("cpu  10 0 5 80 5 0 0 0 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n").unwrap();
        let after = parse("cpu  40 1 15 120 15 2 3 4 9 9\n").unwrap();
        // 100 ticks passed: 40 idle, 10 in iowait.
        assert_eq!(after.busy_since(&before), Some(0.5));
        assert_eq!(before.busy_since(&before), None);
        assert!(after.cpu_s_since(&before) > 0.0);
        assert_eq!(parse("cpu0 1 2 3 4 5 6 7 8\n"), None);
        assert_eq!(parse("cpu  1 2 x 4 5 6 7 8\n"), None);
    }

    #[test]
    fn exact_time_counts_unless_threads_took_theirs_along() {
        let usage =
            |ticked_cpu_s, exact_cpu_s| TreeUsage { ticked_cpu_s, exact_cpu_s, resident_mib: 0.0 };
        let check = |ticked, exact, expected: f64| {
            let seconds = usage(10.0 + ticked, 9.0 + exact).cpu_s_since(&usage(10.0, 9.0));
            assert!((seconds - expected).abs() < 1e-9, "{ticked} {exact}: {seconds}");
        };
        check(0.04, 0.0467, 0.0467);
        check(0.05, 0.0467, 0.0467);
        check(3.0, 1.5, 3.0);
        // A kernel without scheduler statistics.
        check(2.0, 0.0, 2.0);
    }

    #[test]
    fn the_tree_is_walked_to_the_leaves_without_its_root() {
        let stat = |parent| Stat { parent, cpu_ticks: 1, resident_pages: 1 };
        let stats = BTreeMap::from([
            (1, stat(0)),
            (10, stat(1)),
            (11, stat(10)),
            (12, stat(10)),
            (13, stat(12)),
            (20, stat(1)),
        ]);
        let mut found = descendants(&stats, 10);
        found.sort_unstable();
        assert_eq!(found, [11, 12, 13]);
    }

    #[test]
    fn own_cpu_time_grows_with_work() {
        let own = || {
            let line = fs::read_to_string("/proc/self/stat").unwrap();
            parse_stat(&line).unwrap()
        };
        let before = own();
        let mut value = 1_u64;
        // Bounded by the work, not by the clock: some 100 ms of arithmetic even when optimised.
        while own().cpu_ticks < before.cpu_ticks + 3 {
            for step in 0..1_000_000_u64 {
                value = std::hint::black_box(value.wrapping_mul(31).wrapping_add(step));
            }
        }
        assert!(own().resident_pages > 0);
        let exact_ticks = threads_nanos(std::process::id()) / 10_000_000;
        assert!(exact_ticks == 0 || exact_ticks + 1 >= 3, "{exact_ticks}");
    }
}
