//! CPU time and memory of process trees.

use procfs::process::{Process, Stat, all_processes};
use procfs::{CpuTime, CurrentSI as _, KernelStats, ProcResult};

/// Largest excess of ticks over the exact time in seconds: one tick for each of a few processes.
const TICK_ERROR_S: f64 = 0.05;

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

    fn of<'a>(processes: impl IntoIterator<Item = &'a Stat>) -> Self {
        let (mut ticks, mut nanos, mut pages) = (0, 0, 0);
        for process in processes {
            let children = u64::try_from(process.cutime + process.cstime).unwrap_or_default();
            ticks += process.utime + process.stime + children;
            pages += process.rss;
            // A process that has ended since the list was read leaves only its ticks.
            nanos += threads_nanos(process.pid).unwrap_or_default();
        }
        Self {
            ticked_cpu_s: ticks as f64 / procfs::ticks_per_second() as f64,
            exact_cpu_s: nanos as f64 / 1e9,
            resident_mib: (pages * procfs::page_size()) as f64 / f64::from(1 << 20),
        }
    }
}

/// Returns the CPU times of the machine so far.
pub(crate) fn machine_time() -> ProcResult<CpuTime> {
    Ok(KernelStats::current()?.total)
}

/// Returns the share of all cores that was busy between two times; NaN if no tick has passed.
pub(crate) fn busy_share(before: &CpuTime, after: &CpuTime) -> f64 {
    // A core that waits for a disk (iowait) is idle, too. Guests' time is part of user already.
    let idle = |time: &CpuTime| time.idle + time.iowait.unwrap_or_default();
    let busy = |time: &CpuTime| {
        let interrupts = time.irq.unwrap_or_default() + time.softirq.unwrap_or_default();
        time.user + time.nice + time.system + interrupts + time.steal.unwrap_or_default()
    };
    let busy = busy(after).saturating_sub(busy(before)) as f64;
    busy / (busy + idle(after).saturating_sub(idle(before)) as f64)
}

/// Returns the usage of all descendants of `root`, without `root` itself.
pub(crate) fn descendants_usage(root: u32) -> ProcResult<TreeUsage> {
    Ok(TreeUsage::of(descendants(&all_stats()?, root)))
}

/// Returns what [`descendants_usage`] does for each of `roots`, and reads `/proc` once for all.
pub(crate) fn each_descendants_usage(roots: &[u32]) -> ProcResult<Vec<TreeUsage>> {
    let stats = all_stats()?;
    Ok(roots.iter().map(|root| TreeUsage::of(descendants(&stats, *root))).collect())
}

/// Lists the processes below `root`.
pub(crate) fn descendants_of(root: u32) -> ProcResult<Vec<i32>> {
    Ok(descendants(&all_stats()?, root).iter().map(|process| process.pid).collect())
}

/// Sums the CPU time of a process's living threads.
fn threads_nanos(process: i32) -> ProcResult<u64> {
    let threads = Process::new(process)?.tasks()?.flatten();
    Ok(threads.filter_map(|thread| Some(thread.schedstat().ok()?.sum_exec_runtime)).sum())
}

/// Reads the state of every process. A process that ends during the read is left out.
fn all_stats() -> ProcResult<Vec<Stat>> {
    Ok(all_processes()?.flatten().filter_map(|process| process.stat().ok()).collect())
}

/// Lists all processes below `root`, each once.
fn descendants(stats: &[Stat], root: u32) -> Vec<&Stat> {
    let (mut found, mut open) = (Vec::new(), vec![root.cast_signed()]);
    while let Some(parent) = open.pop() {
        // A process that names itself as parent would be found forever.
        let children = stats.iter().filter(|stat| stat.ppid == parent && stat.pid != parent);
        for child in children {
            found.push(child);
            open.push(child.pid);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use procfs::FromRead as _;

    use super::*;

    #[test]
    fn the_machine_is_busy_unless_idle_or_waiting_for_a_disk() {
        let mut before = machine_time().unwrap();
        (before.irq, before.softirq, before.steal) = (None, None, None);
        let mut after = before.clone();
        (after.user, after.steal) = (before.user + 40, Some(10));
        (after.idle, after.iowait) = (before.idle + 40, Some(before.iowait.unwrap_or(0) + 10));
        assert!((busy_share(&before, &after) - 0.5).abs() < 1e-9);
        assert!(busy_share(&before, &before).is_nan());
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
        let stat = |(pid, parent)| {
            let line = format!("{pid} (a b) S {parent} {}", "0 ".repeat(48));
            Stat::from_read(line.as_bytes()).unwrap()
        };
        let parents = [(1, 0), (10, 1), (11, 10), (12, 10), (13, 12), (20, 1)];
        let stats: Vec<Stat> = parents.map(stat).into();
        let mut found: Vec<i32> = descendants(&stats, 10).iter().map(|stat| stat.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [11, 12, 13]);
    }

    #[test]
    fn own_cpu_time_grows_with_work() {
        let own = || Process::myself().unwrap().stat().unwrap();
        let before = own();
        let mut value = 1_u64;
        // Bounded by the work, not by the clock: some 100 ms of arithmetic even when optimised.
        while own().utime + own().stime < before.utime + before.stime + 3 {
            for step in 0..1_000_000_u64 {
                value = std::hint::black_box(value.wrapping_mul(31).wrapping_add(step));
            }
        }
        let usage = TreeUsage::of([&own()]);
        assert!(usage.resident_mib > 0.0 && usage.ticked_cpu_s >= 0.03);
        // A kernel without scheduler statistics has no exact time.
        assert!(usage.exact_cpu_s == 0.0 || usage.exact_cpu_s > 0.02, "{usage:?}");
    }
}
