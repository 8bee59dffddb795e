//! Bounded mailboxes between threads. Sending never blocks; a sleeping receiver is woken once.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crossbeam_queue::ArrayQueue;
use rustix::event::{EventfdFlags, eventfd};

/// Wakes one thread out of its wait. All of a server's wakers are made before any thread gets a
/// descriptor table of its own, so that their numbers mean the same in every table.
#[derive(Clone, Debug)]
pub struct Waker {
    eventfd: Option<Arc<OwnedFd>>,
}

impl Waker {
    /// A waker for a thread that waits with epoll.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { eventfd: Some(Arc::new(eventfd)) })
    }

    /// A waker that wakes nobody, where one thread runs everything (the simulator).
    pub fn none() -> Self {
        Self { eventfd: None }
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        if let Some(eventfd) = &self.eventfd {
            // It fails only if the counter is full, and then the thread is being woken already.
            let _ = rustix::io::write(&**eventfd, &1u64.to_ne_bytes());
        }
    }

    /// The descriptor, to be watched.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.eventfd.as_ref().map(|eventfd| eventfd.as_fd())
    }

    /// The descriptor's number.
    pub fn number(&self) -> Option<u32> {
        self.eventfd.as_ref().and_then(|eventfd| u32::try_from(eventfd.as_raw_fd()).ok())
    }
}

#[derive(Debug)]
struct Shared<T> {
    queue: ArrayQueue<T>,
    /// Set by the receiver when it is about to wait, cleared by whoever wakes it.
    is_asleep: AtomicBool,
    waker: Waker,
}

/// The sending side of a mailbox.
#[derive(Debug)]
pub struct MailSender<T>(Arc<Shared<T>>);

/// The receiving side of a mailbox.
#[derive(Debug)]
pub struct MailReceiver<T>(Arc<Shared<T>>);

/// A mailbox of at most `len_max` messages whose receiver `waker` wakes.
pub fn mailbox<T>(len_max: usize, waker: Waker) -> (MailSender<T>, MailReceiver<T>) {
    let queue = ArrayQueue::new(len_max.max(1));
    let shared = Arc::new(Shared { queue, is_asleep: AtomicBool::new(false), waker });
    (MailSender(Arc::clone(&shared)), MailReceiver(shared))
}

impl<T> Clone for MailSender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> MailSender<T> {
    /// Puts `message` into the mailbox, or gives it back if that is full. Each sender's messages
    /// are received in the order in which it sent them.
    pub fn send(&self, message: T) -> Result<(), T> {
        self.0.queue.push(message)?;
        // Either this load sees that the receiver sleeps, or the receiver's last look into the
        // queue sees the message: both stand behind a full fence.
        fence(Ordering::SeqCst);
        if self.0.is_asleep.load(Ordering::Relaxed)
            && self.0.is_asleep.swap(false, Ordering::AcqRel)
        {
            self.0.waker.wake();
        }
        Ok(())
    }

    /// Whether a message would find room now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.0.queue.is_full()
    }
}

impl<T> MailReceiver<T> {
    /// The next message.
    pub fn receive(&mut self) -> Option<T> {
        self.0.queue.pop()
    }

    /// Says that the receiver is about to wait. Answers false if there is mail, so that it must
    /// not wait.
    #[must_use = "mail may be there already"]
    pub fn prepare_to_sleep(&mut self) -> bool {
        self.0.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.0.queue.is_empty() {
            return true;
        }
        self.wake_up();
        false
    }

    /// Says that the receiver waits no more.
    pub fn wake_up(&mut self) {
        self.0.is_asleep.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EpollIo, EpollOptions, Io};

    #[test]
    fn a_full_mailbox_gives_the_message_back() {
        let (sender, mut receiver) = mailbox(2, Waker::none());
        assert_eq!((sender.send(1), sender.send(2), sender.send(3)), (Ok(()), Ok(()), Err(3)));
        assert_eq!(receiver.receive(), Some(1));
        assert_eq!(sender.send(4), Ok(()));
        assert_eq!((receiver.receive(), receiver.receive()), (Some(2), Some(4)));
        assert_eq!(receiver.receive(), None);
    }

    #[test]
    fn no_wake_up_is_lost_and_each_sender_keeps_its_order() {
        const COUNT: u64 = 100_000;
        let waker = Waker::new().expect("a descriptor is left");
        let (sender, mut receiver) = mailbox::<(usize, u64)>(64, waker.clone());
        let mut io = EpollIo::new(None, &waker, EpollOptions::default()).expect("epoll works");
        let threads: Vec<_> = (0..2)
            .map(|id| {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    for number in 0..COUNT {
                        while sender.send((id, number)).is_err() {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut next = [0; 2];
        while next != [COUNT; 2] {
            while let Some((id, number)) = receiver.receive() {
                assert_eq!(number, next[id]);
                next[id] += 1;
            }
            if next != [COUNT; 2] && receiver.prepare_to_sleep() {
                // Without a limit: a lost wake-up would hang the test.
                io.wait(None);
                receiver.wake_up();
            }
        }
        threads.into_iter().for_each(|thread| thread.join().expect("the sender ends"));
    }
}
