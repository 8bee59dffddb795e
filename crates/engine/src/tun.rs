//! A TUN device, for a load driver that is its own TCP stack: the `ioctl`s that no safe wrapper offers.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

// linux/if_tun.h
const TUNSETIFF: u32 = 0x4004_54ca;
const TUNSETOFFLOAD: u32 = 0x4004_54d0;
const TUNSETSNDBUF: u32 = 0x4004_54d4;
const IFF_TUN: i16 = 0x0001;
const IFF_NO_PI: i16 = 0x1000;
const IFF_VNET_HDR: i16 = 0x4000;
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;

/// `struct ifreq` as far as TUNSETIFF reads it: a name, flags, and room to 40 bytes.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// Attaches to the TUN device `name`, non-blocking, with virtio headers and large segments.
///
/// # Errors
/// There is no such device, or no right to use it.
pub fn open_tun(name: &str) -> io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open("/dev/net/tun")?;
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR,
        rest: [0; 22],
    };
    // The last byte stays zero.
    let text = &name.as_bytes()[..name.len().min(15)];
    request.name[..text.len()].copy_from_slice(text);
    let fd = file.as_raw_fd();
    // SAFETY: `request` has the layout and size of `struct ifreq` and outlives the call.
    check(unsafe { libc::ioctl(fd, TUNSETIFF as libc::Ioctl, &raw mut request) })?;
    // SAFETY: this request takes a plain number.
    check(unsafe { libc::ioctl(fd, TUNSETOFFLOAD as libc::Ioctl, TUN_F_CSUM | TUN_F_TSO4) })?;
    let send_buffer = i32::MAX;
    // SAFETY: this request reads one `int`, which outlives the call.
    check(unsafe { libc::ioctl(fd, TUNSETSNDBUF as libc::Ioctl, &raw const send_buffer) })?;
    Ok(file)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
