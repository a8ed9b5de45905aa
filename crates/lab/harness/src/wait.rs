//! Waits for conditions that no event reports.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// Looks again and again, with a `pause` in between, until `look` returns something.
///
/// # Errors
/// Returns an error with `what` and the last reason of `look` after `limit`.
pub async fn wait_for<T, E: Display>(
    what: &str,
    limit: Duration,
    pause: Duration,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(why) => anyhow::ensure!(start.elapsed() < limit, "{what}: {why:#}"),
        }
        // wait: until the next look
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn a_wait_ends_with_what_was_found_or_the_last_reason() {
        let mut looks = 0;
        let third = async || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err("not yet") }
        };
        assert_eq!(wait_for("the third", Duration::MAX, PAUSE, third).await.unwrap(), 3);
        let never = async || Err::<(), _>(anyhow::anyhow!("inner").context("outer"));
        let late = wait_for("it does not come", 5 * PAUSE, PAUSE, never).await.unwrap_err();
        assert_eq!(late.to_string(), "it does not come: outer: inner");
    }
}
