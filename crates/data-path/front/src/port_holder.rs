//! Finds the process that has a port, for error messages.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum length of a command line in a message, in bytes.
const COMMAND_BYTES_MAX: usize = 160;

/// Transport of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortTransport {
    /// Sockets that listen for TCP.
    Tcp,
    /// UDP sockets without a peer.
    Udp,
}

/// Socket that receives at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    address: SocketAddr,
    inode: u64,
}

/// Describes the process that has `address`, or one that overlaps with it, if the system shows it;
/// e.g. `0.0.0.0:8080 is served by pid 17 (spillway run --config a.toml)`.
#[must_use]
pub fn holder_of(address: SocketAddr, transport: PortTransport) -> Option<String> {
    let bound = bound(transport).into_iter().find(|bound| overlaps(bound.address, address))?;
    let at = bound.address;
    Some(match process_with(bound.inode) {
        Some((pid, command)) => format!("{at} is served by pid {pid} ({command})"),
        None => format!("{at} is served by a process of another user or container"),
    })
}

/// Returns an address that another socket listens on and that overlaps with `address` but differs
/// from it: of two sockets that may share a port, the one with the narrower address gets
/// everything.
pub fn narrower_or_wider(address: SocketAddr) -> Option<SocketAddr> {
    let others = bound(PortTransport::Tcp).into_iter().map(|bound| bound.address);
    let is_same = |other: &SocketAddr| canonical(*other) == canonical(address);
    { others }.find(|other| overlaps(*other, address) && !is_same(other))
}

fn bound(transport: PortTransport) -> Vec<Bound> {
    // States that the kernel gives sockets which listen, and UDP sockets without a peer.
    let (files, state) = match transport {
        PortTransport::Tcp => (["/proc/net/tcp", "/proc/net/tcp6"], "0A"),
        PortTransport::Udp => (["/proc/net/udp", "/proc/net/udp6"], "07"),
    };
    let tables = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    tables.flat_map(|table| parse(&table, state)).collect()
}

fn overlaps(one: SocketAddr, other: SocketAddr) -> bool {
    let (one_ip, other_ip) = (one.ip().to_canonical(), other.ip().to_canonical());
    let is_any = |ip: IpAddr| ip.is_unspecified();
    one.port() == other.port() && (one_ip == other_ip || is_any(one_ip) || is_any(other_ip))
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// Returns the sockets of a state from a table like `/proc/net/tcp`.
fn parse(table: &str, state: &str) -> Vec<Bound> {
    let rows = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_meant = *fields.get(3)? == state;
        let (address, inode) = (parse_address(fields.get(1)?)?, fields.get(9)?.parse().ok()?);
        is_meant.then_some(Bound { address, inode })
    });
    rows.collect()
}

/// Reads an address as the kernel writes it: words of the machine's own byte order in hexadecimal.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok();
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?.to_ne_bytes()).into(),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at)?.to_ne_bytes());
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Returns id and command line of the process that has this socket open.
fn process_with(inode: u64) -> Option<(u32, String)> {
    let wanted = format!("socket:[{inode}]");
    let pids = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    { pids }.find_map(|pid| {
        let mut files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let has_it = files.any(|file| {
            let target = file.and_then(|file| fs::read_link(file.path()));
            target.is_ok_and(|target| target.as_os_str() == wanted.as_str())
        });
        has_it.then(|| (pid, command_of(pid)))
    })
}

fn command_of(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    let text: String = words.join(" ").chars().filter(|char| !char.is_control()).collect();
    let end = text.floor_char_boundary(COMMAND_BYTES_MAX.min(text.len()));
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_kernel_s_tables_are_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
            uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0 0 41 1 0\n\
            1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000  0 0 42 1 0\n\
            2: 0000000000000000FFFF00000100007F:0050 0:0 0A 0:0 0:0 0  0 0 43 1 0\n junk\n";
        assert_eq!(
            parse(table, "0A"),
            [
                Bound { address: address("127.0.0.1:8080"), inode: 41 },
                Bound { address: address("[::ffff:127.0.0.1]:80"), inode: 43 },
            ]
        );
    }

    #[test]
    fn a_wildcard_overlaps_with_every_address_of_its_port() {
        for (one, other, expected) in [
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "0.0.0.0:81", false),
        ] {
            assert_eq!(overlaps(address(one), address(other)), expected, "{one} {other}");
            assert_eq!(overlaps(address(other), address(one)), expected, "{other} {one}");
        }
    }

    #[test]
    fn this_process_is_found_by_its_sockets() {
        let me = format!("pid {} (", std::process::id());
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp_address = tcp.local_addr().unwrap();
        for (address, transport) in
            [(tcp_address, PortTransport::Tcp), (udp.local_addr().unwrap(), PortTransport::Udp)]
        {
            let holder = holder_of(address, transport).unwrap();
            assert!(holder.contains(&me), "{holder}");
        }
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), tcp_address.port());
        assert_eq!(narrower_or_wider(any), Some(tcp_address));
        assert_eq!(narrower_or_wider(tcp_address), None);
    }
}
