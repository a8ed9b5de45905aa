//! Parts of IPv4, TCP, UDP and ICMP that forwarding and address translation need.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Protocol of a flow.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PacketProtocol {
    /// TCP, with ports.
    Tcp,
    /// UDP, with ports.
    Udp,
    /// ICMP echo: its identifier takes the place of both ports.
    Icmp,
}

/// Address and port at one end of a flow.
pub(crate) type PacketAddress = (Ipv4Addr, u16);

/// End of the path of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

const HEADER_BYTES_MIN: usize = 20;
const ADDRESS_OFFSETS: [usize; 2] = [12, 16];
const IP_CHECKSUM: usize = 10;

/// IPv4 packet with a whole header.
#[derive(Debug)]
pub(crate) struct Packet<'a> {
    bytes: &'a mut [u8],
    header_bytes: usize,
}

impl<'a> Packet<'a> {
    /// Wraps the bytes of a packet; `None` if they are no whole IPv4 packet.
    pub(crate) fn parse(bytes: &'a mut [u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let header_bytes = usize::from(first & 0x0f) * 4;
        let is_whole = first >> 4 == 4
            && header_bytes >= HEADER_BYTES_MIN
            && bytes.len() >= header_bytes
            && usize::from(u16::from_be_bytes([bytes[2], bytes[3]])) == bytes.len();
        is_whole.then_some(Self { bytes, header_bytes })
    }

    pub(crate) fn address(&self, side: Side) -> Ipv4Addr {
        let at = ADDRESS_OFFSETS[side as usize];
        let octets = &self.bytes[at..at + 4];
        Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])
    }

    /// Returns protocol, source and destination; `None` for other protocols, fragments and ICMP
    /// errors.
    pub(crate) fn flow(&self) -> Option<(PacketProtocol, PacketAddress, PacketAddress)> {
        let transport = self.transport()?;
        let source = self.word(port_offset(transport.protocol, Side::Source) + self.header_bytes);
        let destination =
            self.word(port_offset(transport.protocol, Side::Destination) + self.header_bytes);
        Some((
            transport.protocol,
            (self.address(Side::Source), source),
            (self.address(Side::Destination), destination),
        ))
    }

    /// Replaces address and port at one end. Does nothing if the packet has no flow.
    pub(crate) fn rewrite(&mut self, side: Side, endpoint: PacketAddress) {
        let Some(transport) = self.transport() else { return };
        let checksum = self.header_bytes + transport.checksum;
        // A UDP checksum of zero means that there is none.
        let is_summed = transport.protocol != PacketProtocol::Udp || self.word(checksum) != 0;
        let address_at = ADDRESS_OFFSETS[side as usize];
        for (at, octets) in [(0, 0), (2, 2)] {
            let value = endpoint.0.octets();
            let new = u16::from_be_bytes([value[octets], value[octets + 1]]);
            let old = self.replace(address_at + at, new);
            self.adjust(IP_CHECKSUM, old, new);
            // The checksum of ICMP does not cover the addresses.
            if is_summed && transport.protocol != PacketProtocol::Icmp {
                self.adjust(checksum, old, new);
            }
        }
        let port_at = self.header_bytes + port_offset(transport.protocol, side);
        let old = self.replace(port_at, endpoint.1);
        if is_summed {
            self.adjust(checksum, old, endpoint.1);
        }
    }

    /// Flips one bit after the header; `which` selects it.
    pub(crate) fn flip_bit(&mut self, which: usize) {
        let bits = (self.bytes.len() - self.header_bytes) * 8;
        if bits > 0 {
            let bit = which % bits;
            self.bytes[self.header_bytes + bit / 8] ^= 1 << (bit % 8);
        }
    }

    fn transport(&self) -> Option<PacketTransport> {
        const FRAGMENT: u16 = 0x3fff;
        const ECHO_REPLY: u8 = 0;
        const ECHO_REQUEST: u8 = 8;
        if self.word(6) & FRAGMENT != 0 {
            return None;
        }
        let payload = &self.bytes[self.header_bytes..];
        let (protocol, checksum, least) = match self.bytes[9] {
            6 => (PacketProtocol::Tcp, 16, 20),
            17 => (PacketProtocol::Udp, 6, 8),
            1 if matches!(payload.first(), Some(&(ECHO_REQUEST | ECHO_REPLY))) => {
                (PacketProtocol::Icmp, 2, 8)
            }
            _ => return None,
        };
        (payload.len() >= least).then_some(PacketTransport { protocol, checksum })
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn replace(&mut self, at: usize, new: u16) -> u16 {
        let old = self.word(at);
        self.bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
        old
    }

    /// Updates the checksum at `at` after a word changed (RFC 1624).
    fn adjust(&mut self, at: usize, old: u16, new: u16) {
        let mut sum = u32::from(!self.word(at)) + u32::from(!old) + u32::from(new);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        // The cast is safe: the sum has at most 16 bits after the loop.
        self.replace(at, !(sum as u16));
    }
}

/// Transport protocol of a packet, with the offset of its checksum after the IP header.
struct PacketTransport {
    protocol: PacketProtocol,
    checksum: usize,
}

fn port_offset(protocol: PacketProtocol, side: Side) -> usize {
    match (protocol, side) {
        (PacketProtocol::Icmp, _) => 4,
        (_, Side::Source) => 0,
        (_, Side::Destination) => 2,
    }
}

/// Hand-made packets with correct checksums, for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(crate) fn udp(
        source: PacketAddress,
        destination: PacketAddress,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(source.1.to_be_bytes());
        body.extend(destination.1.to_be_bytes());
        body.extend((8 + payload.len() as u16).to_be_bytes());
        body.extend([0, 0]);
        body.extend(payload);
        packet(17, source.0, destination.0, body, Some(6))
    }

    pub(crate) fn tcp(source: PacketAddress, destination: PacketAddress) -> Vec<u8> {
        let mut body = vec![0; 20];
        body[..2].copy_from_slice(&source.1.to_be_bytes());
        body[2..4].copy_from_slice(&destination.1.to_be_bytes());
        body[12] = 0x50;
        packet(6, source.0, destination.0, body, Some(16))
    }

    pub(crate) fn echo(kind: u8, identifier: u16, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
        let mut body = vec![kind, 0, 0, 0];
        body.extend(identifier.to_be_bytes());
        body.extend([0, 1, 2, 3, 4]);
        let sum = checksum(&body);
        body[2..4].copy_from_slice(&sum.to_be_bytes());
        packet(1, from, to, body, None)
    }

    fn packet(
        protocol: u8,
        from: Ipv4Addr,
        to: Ipv4Addr,
        mut body: Vec<u8>,
        sum_at: Option<usize>,
    ) -> Vec<u8> {
        if let Some(at) = sum_at {
            let sum = checksum(&summed(protocol, from, to, &body));
            body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let mut bytes = vec![0x45, 0];
        bytes.extend((20 + body.len() as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        bytes.extend(from.octets());
        bytes.extend(to.octets());
        let sum = checksum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// Returns true if all checksums of `bytes` are correct.
    pub(crate) fn is_sound(bytes: &[u8]) -> bool {
        let at = |n: usize| Ipv4Addr::new(bytes[n], bytes[n + 1], bytes[n + 2], bytes[n + 3]);
        let body = match bytes[9] {
            1 => checksum(&bytes[20..]),
            protocol => checksum(&summed(protocol, at(12), at(16), &bytes[20..])),
        };
        checksum(&bytes[..20]) == 0 && body == 0
    }

    fn summed(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, body: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        all.extend(from.octets());
        all.extend(to.octets());
        all.extend([0, protocol]);
        all.extend((body.len() as u16).to_be_bytes());
        all.extend(body);
        all
    }

    fn checksum(bytes: &[u8]) -> u16 {
        let words = bytes.chunks(2);
        let mut sum: u32 =
            words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::testing::{echo, is_sound, tcp, udp};
    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 2);

    #[test]
    fn what_is_no_whole_ipv4_packet_is_not_read() {
        let mut whole = udp((HERE, 1), (THERE, 2), b"x");
        assert!(Packet::parse(&mut whole).is_some());
        for length in 0..whole.len() {
            assert!(Packet::parse(&mut whole[..length]).is_none(), "{length}");
        }
        whole[0] = 0x65;
        assert!(Packet::parse(&mut whole).is_none());
        whole[0] = 0x44;
        assert!(Packet::parse(&mut whole).is_none());
    }

    #[test]
    fn fragments_and_icmp_errors_have_no_flow() {
        let mut fragment = udp((HERE, 1), (THERE, 2), b"x");
        fragment[6] = 0x20;
        assert!(Packet::parse(&mut fragment).unwrap().flow().is_none());
        let mut unreachable = echo(3, 0, HERE, THERE);
        assert!(Packet::parse(&mut unreachable).unwrap().flow().is_none());
        let mut request = echo(8, 77, HERE, THERE);
        let flow = Packet::parse(&mut request).unwrap().flow();
        assert_eq!(flow, Some((PacketProtocol::Icmp, (HERE, 77), (THERE, 77))));
    }

    #[test]
    fn a_packet_without_udp_checksum_gets_none() {
        let mut bytes = udp((HERE, 1), (THERE, 2), b"x");
        bytes[26..28].fill(0);
        Packet::parse(&mut bytes).unwrap().rewrite(Side::Source, (THERE, 9));
        assert_eq!(bytes[26..28], [0, 0]);
    }

    proptest! {
        #[test]
        fn a_rewritten_packet_has_the_new_end_and_right_checksums(
            address: u32, port: u16, is_source: bool, kind in 0..3, payload: Vec<u8>,
        ) {
            let mut bytes = match kind {
                0 => udp((HERE, 4_000), (THERE, 5_000), &payload),
                1 => tcp((HERE, 4_000), (THERE, 5_000)),
                _ => echo(8, 4_000, HERE, THERE),
            };
            let end = (Ipv4Addr::from(address), port);
            let side = if is_source { Side::Source } else { Side::Destination };
            let mut packet = Packet::parse(&mut bytes).unwrap();
            packet.rewrite(side, end);
            let (_, source, destination) = packet.flow().unwrap();
            prop_assert_eq!(if is_source { source } else { destination }, end);
            prop_assert!(is_sound(&bytes));
        }

        #[test]
        fn a_flipped_bit_is_found_by_a_checksum(which: usize, payload: Vec<u8>) {
            let mut bytes = udp((HERE, 4_000), (THERE, 5_000), &payload);
            let before = bytes.clone();
            Packet::parse(&mut bytes).unwrap().flip_bit(which);
            let different: u32 =
                bytes.iter().zip(&before).map(|(new, old)| (new ^ old).count_ones()).sum();
            prop_assert_eq!(different, 1);
            prop_assert_eq!(&bytes[..20], &before[..20]);
            prop_assert!(!is_sound(&bytes));
        }
    }
}
