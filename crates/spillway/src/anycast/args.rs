//! Command line of `spillway anycast`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args};
use spillway_health::AnnouncementConfig;

use crate::connect::{AdminUrl, Connect, HEADING, parse_admin};

#[derive(Debug, Args)]
#[command(
    after_help = "Example: spillway anycast --bird /run/bird/bird.ctl --protocol spillway_anycast\n\
    Example: spillway anycast --exabgp --prefix 192.0.2.1/32 --prefix 2001:db8::1/128\n\n\
    Polls /steering of the node. With --bird it enables and disables protocols of BIRD, which announce the\n\
    address. With --exabgp it is a `process` of ExaBGP and writes `announce route` and `withdraw route`.\n\
    When it is stopped, it withdraws the address. deploy/anycast/ has config files."
)]
#[command(group = ArgGroup::new("router").required(true).args(["bird", "exabgp"]))]
pub(crate) struct AnycastArgs {
    /// BIRD's control socket, e.g. /run/bird/bird.ctl.
    #[arg(long, requires = "protocols")]
    pub(crate) bird: Option<PathBuf>,
    /// A protocol of BIRD that announces the address; can be repeated.
    #[arg(long = "protocol", requires = "bird", value_parser = parse_symbol)]
    pub(crate) protocols: Vec<String>,
    /// Talks to ExaBGP on standard input and output.
    #[arg(long, requires = "prefixes")]
    pub(crate) exabgp: bool,
    /// A prefix for ExaBGP to announce; can be repeated.
    #[arg(long = "prefix", requires = "exabgp")]
    pub(crate) prefixes: Vec<Prefix>,
    /// Attributes of each prefix, e.g. `next-hop self med 100 community [65000:1]`.
    #[arg(long, requires = "exabgp", default_value = "next-hop self", value_parser = parse_attributes)]
    pub(crate) attributes: String,
    /// Address of the node: a listener for clients, or the admin listener.
    #[arg(long, env = "SPILLWAY_ADMIN", default_value = "http://127.0.0.1:9900")]
    #[arg(value_parser = parse_admin, help_heading = HEADING)]
    pub(crate) node: AdminUrl,
    /// The CA of the listener's certificate, PEM; the system's CAs by default.
    #[arg(long, env = "SPILLWAY_CA", help_heading = HEADING)]
    pub(crate) ca: Option<PathBuf>,
    /// Milliseconds between two checks.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub(crate) interval_ms: u64,
    /// Time limit for an answer in milliseconds, for nodes that hang.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(crate) timeout_ms: u64,
    /// Consecutive good answers before the address is announced.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rise: u32,
    /// Consecutive bad or missing answers before the address is withdrawn.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) fall: u32,
    /// Minimum time in milliseconds for which the address stays withdrawn.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    pub(crate) hold_ms: u64,
    /// Prints each change as one JSON object; on standard error with --exabgp.
    #[arg(long)]
    pub(crate) json: bool,
}

impl AnycastArgs {
    /// Returns the thresholds by which answers are counted.
    pub(crate) fn counting(&self) -> AnnouncementConfig {
        let hold = Duration::from_millis(self.hold_ms);
        AnnouncementConfig { rise: self.rise, fall: self.fall, hold }
    }

    /// Returns how to reach the node. `/steering` needs no token.
    pub(crate) fn connect(&self) -> Connect {
        let (admin, ca) = (self.node.clone(), self.ca.clone());
        Connect { admin, ca, token_file: None, json: self.json }
    }
}

/// An IP prefix, e.g. `192.0.2.1/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(address, bits)| {
            Some(Self { address: address.parse().ok()?, bits: bits.parse().ok()? })
        });
        let prefix = parsed.ok_or("write it as ADDRESS/BITS, e.g. 192.0.2.1/32")?;
        // 128 bits from the left, for both address families.
        let (number, most) = match prefix.address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        if prefix.bits > most {
            return Err(format!("it has at most {most} bits"));
        }
        // A shift by all 128 bits overflows: a prefix of that length has no host bits.
        if number.checked_shl(prefix.bits.into()).unwrap_or(0) != 0 {
            return Err(format!("bits are set behind the first {}", prefix.bits));
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Parses a name of BIRD's config. Other characters could change the order that has the name in it.
fn parse_symbol(text: &str) -> Result<String, String> {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_symbol = text.len() <= 64 && text.starts_with(is_first) && text.chars().all(is_rest);
    is_symbol
        .then(|| text.to_owned())
        .ok_or_else(|| "BIRD's names are made of letters, digits and _".to_owned())
}

/// Parses attributes on one line, since another line would be another order.
fn parse_attributes(text: &str) -> Result<String, String> {
    let is_line = !text.is_empty() && text.len() <= 1_024 && !text.chars().any(char::is_control);
    is_line.then(|| text.to_owned()).ok_or_else(|| "write it on one line".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_no_bits_behind_its_length() {
        for good in ["192.0.2.1/32", "192.0.2.0/24", "0.0.0.0/0", "2001:db8::1/128", "::/0"] {
            assert_eq!(good.parse::<Prefix>().unwrap().to_string(), good);
        }
        for bad in ["192.0.2.1", "192.0.2.1/24", "192.0.2.1/33", "::1/129", "::1/64", "a/1", "/"] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_and_attributes_say_nothing_else() {
        assert!(parse_symbol("spillway_anycast4").is_ok());
        for bad in ["", "4a", "a b", "all\ndown", "\"a\""] {
            assert!(parse_symbol(bad).is_err(), "{bad:?}");
        }
        assert!(parse_attributes("next-hop self med 100").is_ok());
        assert!(parse_attributes("next-hop self\nwithdraw route").is_err());
    }
}
