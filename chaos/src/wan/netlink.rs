//! Minimal rtnetlink client for a new namespace: links up, addresses, a default route.
//!
//! Written by hand because the crates for it bring a runtime and thousands of lines for four
//! messages.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, netlink, recv, sendto,
    socket_with,
};

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const ERROR: u16 = 2;

const REQUEST_AND_ACKNOWLEDGE: u16 = 0x1 | 0x4;
const CREATE: u16 = 0x400;

const LINK_MTU: u16 = 4;
const LINK_QUEUE_LENGTH: u16 = 13;
const ADDRESS_OF_PEER: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ROUTE_DEVICE: u16 = 4;
const ROUTE_SOURCE: u16 = 7;

const IPV4: u8 = 2;
const UP: u32 = 1;

/// Index of the loopback device, the first one of every namespace.
pub(crate) const LOOPBACK: u32 = 1;

/// Connection to the kernel's routing tables, in the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        // Protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Returns the index of the device `name`.
    pub(crate) fn index(&self, name: &str) -> io::Result<u32> {
        Ok(netdevice::name_to_index(&self.socket, name)?)
    }

    /// Sets a device up.
    pub(crate) fn bring_up(&mut self, device: u32) -> io::Result<()> {
        self.request(NEW_LINK, 0, link_header(device, UP))
    }

    /// Sets the MTU of a device and the length of its queue in packets.
    pub(crate) fn size(&mut self, device: u32, mtu_bytes: u32, queue: u32) -> io::Result<()> {
        let mut body = link_header(device, 0);
        attribute(&mut body, LINK_MTU, mtu_bytes.to_ne_bytes());
        attribute(&mut body, LINK_QUEUE_LENGTH, queue.to_ne_bytes());
        self.request(NEW_LINK, 0, body)
    }

    /// Adds an address to a device, with a route to its subnet.
    pub(crate) fn add_address(
        &mut self,
        device: u32,
        address: Ipv4Addr,
        prefix_length: u8,
    ) -> io::Result<()> {
        let mut body = vec![IPV4, prefix_length, 0, 0];
        body.extend(device.to_ne_bytes());
        attribute(&mut body, ADDRESS_LOCAL, address.octets());
        attribute(&mut body, ADDRESS_OF_PEER, address.octets());
        self.request(NEW_ADDRESS, CREATE, body)
    }

    /// Adds a default route through a device.
    pub(crate) fn add_default_route(&mut self, device: u32, source: Ipv4Addr) -> io::Result<()> {
        const MAIN_TABLE: u8 = 254;
        const BY_ADMINISTRATOR: u8 = 4;
        const ON_LINK: u8 = 253;
        const UNICAST: u8 = 1;
        let mut body = vec![IPV4, 0, 0, 0, MAIN_TABLE, BY_ADMINISTRATOR, ON_LINK, UNICAST];
        body.extend(0_u32.to_ne_bytes());
        attribute(&mut body, ROUTE_DEVICE, device.to_ne_bytes());
        attribute(&mut body, ROUTE_SOURCE, source.octets());
        self.request(NEW_ROUTE, CREATE, body)
    }

    fn request(&mut self, kind: u16, flags: u16, body: Vec<u8>) -> io::Result<()> {
        self.sequence += 1;
        let mut message = Vec::with_capacity(16 + body.len());
        // The cast is safe: a message has a few dozen bytes.
        message.extend((16 + body.len() as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST_AND_ACKNOWLEDGE | flags).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(body);
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &message, SendFlags::empty(), &kernel)?;
        self.acknowledged()
    }

    fn acknowledged(&self) -> io::Result<()> {
        let mut answer = [0; 1024];
        let (length, _) = recv(&self.socket, &mut answer, RecvFlags::empty())?;
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        if length < 20 || kind != ERROR {
            return Err(io::Error::other("the kernel answered with no acknowledgement"));
        }
        match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

fn link_header(device: u32, flags: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(device.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    // Mask of the flags to change.
    body.extend(flags.to_ne_bytes());
    body
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    body.extend(8_u16.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}
