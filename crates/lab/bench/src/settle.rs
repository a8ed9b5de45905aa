//! Wait until a proxy has nothing more to do.

use std::time::{Duration, Instant};

use crate::usage::{TreeUsage, descendants_usage};

/// Time over which the CPU of the processes is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Largest share of a core that idle processes take, for health checks and timers.
const IDLE_SHARE_MAX: f64 = 0.1;

/// Longest wait; after it the proxy is taken as it is, and its neighbours share the machine with it.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// Waits until the processes below `root` are idle, and returns their usage then.
///
/// A proxy with several processes answers when its first one is ready, while others still start. A
/// proxy that was overloaded works on after its clients have left. Both would take CPU from the
/// proxy that is measured next.
///
/// # Errors
/// Returns an error if `/proc` cannot be read.
pub(crate) async fn settle(root: u32) -> procfs::ProcResult<TreeUsage> {
    let deadline = Instant::now() + SETTLE_MAX;
    let mut before = descendants_usage(root)?;
    loop {
        tokio::time::sleep(LOOK).await;
        let now = descendants_usage(root)?;
        if is_idle(&before, &now) || Instant::now() > deadline {
            return Ok(now);
        }
        before = now;
    }
}

fn is_idle(before: &TreeUsage, now: &TreeUsage) -> bool {
    now.cpu_s_since(before) < IDLE_SHARE_MAX * LOOK.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_core_is_not_idle_and_a_timer_is() {
        let usage =
            |cpu_s| TreeUsage { ticked_cpu_s: cpu_s, exact_cpu_s: cpu_s, resident_mib: 9.0 };
        assert!(!is_idle(&usage(3.0), &usage(3.25)));
        assert!(is_idle(&usage(3.0), &usage(3.002)));
    }
}
