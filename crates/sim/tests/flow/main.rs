//! Single connections of a simulated node: the clock and the network do what each test says, so that what must
//! take long takes no time, and what must come together does.

mod clock;
mod commands;
mod connections;
mod devices;
mod node;
mod port;
mod queues;
mod reload;
mod waiting;
