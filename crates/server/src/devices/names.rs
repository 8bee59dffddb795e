//! Names of devices: `APPLICATION/DEVICE`.

use std::sync::Arc;

use model::{Code, Limits, Refusal, TopicName};

use crate::config::is_device_name;

pub(super) fn bad_request(why: String) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot read the request: {why}"))
}

/// The name of a device in its application.
pub(super) fn device_name(application: &str, device: &str) -> Result<Arc<str>, Refusal> {
    for (what, text) in [("application", application), ("device", device)] {
        if !is_device_name(text) {
            let why =
                format!("`{text}` is no name of a {what}; use 1 to 64 of A-Z a-z 0-9 . _ - :");
            return Err(bad_request(why));
        }
    }
    Ok(format!("{application}/{device}").into())
}

/// A name as a command gives it.
pub(super) fn parse(device: &str) -> Result<Arc<str>, Refusal> {
    let why = || bad_request(format!("`{device}` is no device; give APPLICATION/DEVICE"));
    let (application, device) = device.split_once('/').ok_or_else(why)?;
    device_name(application, device)
}

/// The topic of a device that a command names.
///
/// # Errors
/// It is no name of a device.
pub(crate) fn topic_of_device(device: &str) -> Result<TopicName, Refusal> {
    parse(device).map(|name| topic_of(&name, ""))
}

/// A topic about a device; its name was checked.
pub(super) fn topic_of(name: &str, end: &str) -> TopicName {
    let limits = Limits { topic_bytes_max: usize::MAX, ..Limits::default() };
    TopicName::parse(&format!("devices/{name}{end}"), &limits).expect("names of devices are levels")
}

/// Why a device is not asked that was chosen a moment ago.
pub(crate) fn just_went(name: &str) -> Refusal {
    let text = format!("cannot ask `{name}`: it just went; ask again later");
    Refusal::new(Code::DeviceGone, text)
}

pub(super) fn no_device(name: &str) -> Refusal {
    let text = format!(
        "cannot find `{name}`: no such device was attached lately; check the application and the device"
    );
    Refusal::new(Code::NoDevice, text)
}
