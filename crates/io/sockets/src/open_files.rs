//! Limit of open files: how high it can be, and how many clients it allows.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Highest limit that is asked for, as systemd and container engines set it: more than any node uses.
const LIMIT_MAX: u64 = 1 << 20;
/// Descriptors for everything beside clients and replicas: runtimes, listeners, links, logs, data.
const OTHERS: u64 = 32;

/// Raises the soft limit of open files to the hard limit, and returns the limit in force; `None` for
/// no limit. Shells and service managers set a low soft limit for programs that use `select`.
///
/// # Errors
/// Returns an error if the system refuses; the limit is as it was then.
pub fn raise_open_files() -> io::Result<Option<u64>> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(LIMIT_MAX).min(LIMIT_MAX);
    let Some(soft) = current.filter(|soft| *soft < wanted) else { return Ok(current) };
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })?;
    Ok(Some(wanted.max(soft)))
}

/// Returns the most client connections that `open_files` descriptors allow. As many are kept for
/// connections to replicas: a request needs one on each side.
#[must_use]
pub fn clients_max(open_files: u64) -> usize {
    let clients = open_files.saturating_sub(OTHERS) / 2;
    usize::try_from(clients).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_as_many_descriptors_for_replicas() {
        assert_eq!([0, 96, 1_024, 1 << 20].map(clients_max), [1, 32, 496, 524_272]);
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one_once() {
        let limit = raise_open_files().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, limit);
        assert_eq!(raise_open_files().unwrap(), limit);
        assert!(limit.is_none_or(|limit| limit >= 1_024.min(LIMIT_MAX)));
    }
}
