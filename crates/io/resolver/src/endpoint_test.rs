//! Tests of connections to hosts with several addresses.

use std::sync::Mutex;
use std::time::Duration;

use super::*;

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 80).into()
}

/// Behaviour of an address in a test.
#[derive(Clone, Copy)]
enum Server {
    Accepts,
    AcceptsAfter(Duration),
    Refuses,
    Unreachable,
    NoDescriptors,
    Silent,
}

/// Races servers at 10.0.0.1 and on; returns the result, the addresses that were tried, and the time.
async fn raced(servers: &[Server]) -> (io::Result<(u8, bool)>, Vec<u8>, Duration) {
    let tried = Mutex::new(Vec::new());
    let started = tokio::time::Instant::now();
    let addresses = (1..=servers.len()).map(|last| address(last as u8));
    let result = first_to_accept(addresses, |address| {
        let SocketAddr::V4(v4) = address else { unreachable!() };
        let last = v4.ip().octets()[3];
        tried.lock().unwrap().push(last);
        let server = servers[usize::from(last) - 1];
        async move {
            match server {
                Server::Accepts => Ok(last),
                Server::AcceptsAfter(time) => {
                    // wait: in paused time, as a slow server does.
                    tokio::time::sleep(time).await;
                    Ok(last)
                }
                Server::Refuses => Err(io::ErrorKind::ConnectionRefused.into()),
                Server::Unreachable => Err(io::ErrorKind::NetworkUnreachable.into()),
                Server::NoDescriptors => Err(io::Error::from_raw_os_error(24)),
                Server::Silent => std::future::pending().await,
            }
        }
    });
    let result = tokio::time::timeout(Duration::from_secs(60), result).await;
    let result = result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let result = result.map(|(last, _, has_failure)| (last, has_failure));
    (result, tried.into_inner().unwrap(), started.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_silent_address_costs_a_quarter_of_a_second() {
    let (result, tried, took) = raced(&[Server::Silent, Server::Accepts]).await;
    assert_eq!(result.unwrap(), (2, false));
    assert_eq!((tried, took), (vec![1, 2], Duration::from_millis(250)));
    let (result, _, took) = raced(&[Server::Silent, Server::Silent, Server::Accepts]).await;
    assert_eq!((result.unwrap().0, took), (3, Duration::from_millis(500)));
}

#[tokio::test(start_paused = true)]
async fn a_slow_address_may_still_win() {
    let slow = Server::AcceptsAfter(Duration::from_millis(300));
    let (result, tried, took) = raced(&[slow, Server::Silent]).await;
    assert_eq!(result.unwrap(), (1, false));
    assert_eq!((tried, took), (vec![1, 2], Duration::from_millis(300)));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_costs_no_time_and_is_reported() {
    let (result, tried, took) = raced(&[Server::Refuses, Server::Accepts]).await;
    assert_eq!((result.unwrap(), tried, took), ((2, true), vec![1, 2], Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn the_error_that_says_most_is_returned() {
    for (servers, kind) in [
        (&[Server::Unreachable, Server::Refuses][..], io::ErrorKind::ConnectionRefused),
        (&[Server::Refuses, Server::Unreachable], io::ErrorKind::ConnectionRefused),
        (&[Server::Unreachable], io::ErrorKind::NetworkUnreachable),
        (&[Server::Silent, Server::Refuses], io::ErrorKind::TimedOut),
        (&[], io::ErrorKind::AddrNotAvailable),
    ] {
        assert_eq!(raced(servers).await.0.unwrap_err().kind(), kind);
    }
    let (result, ..) = raced(&[Server::NoDescriptors, Server::Refuses]).await;
    assert!(is_own_fault(&result.unwrap_err()));
}
