//! A port of a host, and connections to it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::sleep_until;

use crate::connection_address::ConnectionAddress;
use crate::error::{ConnectError, LookupError};
use crate::forbidden::Forbidden;
use crate::host::Host;
use crate::race::{Race, Step, order};

/// Reason for which there is no connection to an address of [`Forbidden`].
const FORBIDDEN: &str =
    "its address is link-local, a cloud's metadata service, or this node's admin listener";

/// Port of a host.
#[derive(Clone, Debug)]
pub struct HostPort {
    host: Arc<Host>,
    port: u16,
    forbidden: Forbidden,
}

impl HostPort {
    pub(crate) fn new(host: Arc<Host>, port: u16, forbidden: Forbidden) -> Self {
        Self { host, port, forbidden }
    }

    /// Returns the host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the known addresses.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let known = self.host.known();
        known.addresses.iter().map(|address| (*address, self.port).into()).collect()
    }

    /// Connects to the first of the known addresses that accepts, without waiting for a name server.
    /// Has no time limit of its own.
    ///
    /// # Errors
    /// Returns an error if no address is known, or none accepts. Then the name is looked up again.
    pub async fn connect(&self) -> Result<(TcpStream, ConnectionAddress), ConnectError> {
        let removals = self.host.removals();
        let known = self.host.known();
        if known.addresses.is_empty() {
            self.host.look_up_again();
            return Err(ConnectError::Name(known.error.clone().unwrap_or(LookupError::Pending)));
        }
        let mut guard = LookUpUnlessConnected { host: &self.host, is_connected: false };
        let addresses = order(&known.addresses, self.host.worked(self.port));
        let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, self.port));
        // Here and not where the replica is named: a name may get any address later.
        let addresses = addresses.filter(|address| !self.forbidden.has(*address));
        let mut addresses = addresses.peekable();
        if addresses.peek().is_none() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, FORBIDDEN).into());
        }
        let raced = first_to_accept(addresses, TcpStream::connect).await;
        let (tcp, address, has_failure) = raced.map_err(|error| match &known.error {
            // The addresses are out of date, and the reason for that is the better one.
            Some(LookupError::NotFound(why)) if !is_own_fault(&error) => {
                ConnectError::Name(LookupError::NotFound(why.clone()))
            }
            _ => ConnectError::Io(error),
        })?;
        guard.is_connected = !has_failure;
        self.host.set_worked(self.port, address.ip());
        // The last bytes of a request would otherwise wait for an acknowledgement.
        tcp.set_nodelay(true)?;
        Ok((tcp, ConnectionAddress::new(Arc::clone(&self.host), address.ip(), removals)))
    }

    /// Begins the next connection with another address: this one accepted, and then served nothing.
    pub fn avoid(&self, address: IpAddr) {
        let known = self.host.known();
        let mut around = known.addresses.iter().cycle().skip_while(|it| **it != address).skip(1);
        if known.addresses.contains(&address)
            && let Some(next) = around.next()
        {
            self.host.set_worked(self.port, *next);
        }
    }
}

/// Asks for a look-up when it is dropped before a connection stands, be it because the caller's time
/// ran out.
struct LookUpUnlessConnected<'a> {
    host: &'a Host,
    is_connected: bool,
}

impl Drop for LookUpUnlessConnected<'_> {
    fn drop(&mut self) {
        if !self.is_connected {
            self.host.look_up_again();
        }
    }
}

/// Connects to the first address that accepts. Returns also whether another one failed before.
async fn first_to_accept<T, C>(
    addresses: impl Iterator<Item = SocketAddr>,
    connect: impl Fn(SocketAddr) -> C,
) -> io::Result<(T, SocketAddr, bool)>
where
    C: Future<Output = io::Result<T>>,
{
    let mut race = Race::new(addresses);
    let mut running = FuturesUnordered::new();
    let mut failure: Option<io::Error> = None;
    loop {
        match race.poll(tokio::time::Instant::now().into_std()) {
            Step::Start(address) => {
                let connecting = connect(address);
                running.push(async move { (address, connecting.await) });
            }
            Step::Wait(until) => tokio::select! {
                Some((address, result)) = running.next() => match result {
                    Ok(connected) => return Ok((connected, address, failure.is_some())),
                    Err(error) => {
                        tracing::debug!(%address, %error, "no connection");
                        race.note_failure();
                        failure = Some(telling(failure, error));
                    }
                },
                () = at(until) => {}
            },
            Step::Lost => {
                return Err(failure.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()));
            }
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns the more informative error: a fault of this process, else a refusal, else another one.
fn telling(earlier: Option<io::Error>, later: io::Error) -> io::Error {
    let rank = |error: &io::Error| match error.kind() {
        _ if is_own_fault(error) => 3,
        io::ErrorKind::ConnectionRefused => 2,
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::AddrNotAvailable => 0,
        _ => 1,
    };
    match earlier {
        Some(earlier) if rank(&earlier) > rank(&later) => earlier,
        _ => later,
    }
}

/// Returns true for errors that are not about the server: this process lacks descriptors or memory.
fn is_own_fault(error: &io::Error) -> bool {
    // EMFILE, ENFILE, ENOBUFS and ENOMEM on Linux.
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12))
}

#[cfg(test)]
#[path = "endpoint_test.rs"]
mod tests;
