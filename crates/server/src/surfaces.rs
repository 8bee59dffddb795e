//! What a listener serves. Which paths belong to which surface is told by `routes::surfaces_of`.
//!
//! A surface is about paths. What a session may do once it is open is a matter of its rights alone.

/// A part of what the server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// Sessions over every transport, and what readers ask over HTTP.
    Clients,
    /// Publications over HTTP, and what publishers ask.
    Publish,
    /// Devices and their applications.
    Devices,
    /// Metrics, slow clients, sessions, diagnostics, and the page.
    Operators,
}

impl Surface {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Clients, Self::Publish, Self::Devices, Self::Operators];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Publish => "publish",
            Self::Devices => "devices",
            Self::Operators => "operators",
        }
    }
}

/// Some surfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surfaces(u8);

impl Surfaces {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self::of(&Surface::ALL);

    /// These.
    pub const fn of(surfaces: &[Surface]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < surfaces.len() {
            bits |= 1 << surfaces[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// The same and one more.
    pub fn insert(&mut self, surface: Surface) {
        self.0 |= 1 << surface as u8;
    }

    /// Whether it is none of them.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Whether it has one of `others`.
    pub fn intersects(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
}
