//! What comes to a shard besides connections: mail, and what its backbones have done. Each kind is a line here, and is taken
//! where it belongs.

use backbone::{BackboneEvent, Ticket};
use engine::Io;
use hub::PolicyIndex;
use model::{Code, Draft, Position, Publication, Refusal, TopicName};

use crate::mail::ShardMail;
use crate::shard::Shard;
use crate::turn::STEPS_OF_MAIL;

impl<I: Io> Shard<I> {
    /// Takes the mail that is here, as far as the turn goes.
    pub(crate) fn take_mail(&mut self) {
        for _ in 0..self.config.limits.mailbox_len_max {
            if self.has_worked_enough() {
                return;
            }
            let Some(mail) = self.peers.receive() else { return };
            self.note_work(STEPS_OF_MAIL);
            self.handle_mail(mail);
        }
    }

    fn handle_mail(&mut self, mail: ShardMail) {
        use ShardMail as Mail;
        let now = self.now;
        match mail {
            Mail::Hub { from, mail } => self.hub.handle_mail(from, mail, now),
            Mail::Append { ticket, draft } => self.append_draft(ticket, draft),
            Mail::Appended { ticket, result } => self.handle_appended(ticket, result),
            Mail::Backbone { backbone, mail } => self.backbones.handle_mail(backbone, mail),
            Mail::FetchPage { from, page, topic, after, count } => {
                self.fetch_page(from, page, &topic, after, count);
            }
            Mail::Page { page, publications } => self.handle_page(page, publications),
            Mail::ReadPositions { from, place, topic } => self.tell_positions(from, place, &topic),
            Mail::Positions { place, positions } => self.handle_positions(place, positions),
            Mail::CheckPositions(unchecked) => self.check_positions(*unchecked),
            Mail::Remember { ticket, topic, positions } => self.remember(ticket, topic, positions),
            Mail::ReadHistory(wanted) => self.read_history(wanted.0, wanted.1),
            Mail::History(answer) => self.answer_history(answer.0, answer.1),
            Mail::Question(question) => self.handle_question(*question),
            Mail::Response(response) => self.handle_response(response),
            Mail::Requests { from, mail } => self.handle_request_mail(from, mail),
            Mail::Device(mail) => self.handle_device_mail(mail),
            Mail::Gather(gather) => self.gather(*gather),
            Mail::SessionRequest(request) => self.handle_own_session_request(*request),
            Mail::Port(mail) => self.handle_port(mail),
            Mail::Settings(settings) => self.take_over(&settings),
            Mail::UnknownHost(name) => self.note_unknown_host(name),
            Mail::ForeignOrigin(origin) => self.note_foreign_origin(origin),
            Mail::Stop => self.stop(),
        }
    }

    /// Does what the hub asks of the backbones, and takes what they have done.
    pub(crate) fn run_backbones(&mut self) {
        loop {
            while let Some(topic) = self.hub.poll_ask() {
                self.backbones.of(self.hub.policy_for(&topic)).follow(&topic);
            }
            let Some(event) = self.backbones.poll_event() else { return };
            self.handle_backbone(event);
        }
    }

    fn handle_backbone(&mut self, event: BackboneEvent) {
        use BackboneEvent as Event;
        match event {
            Event::Kept { ticket, topic, position, publication } => {
                self.handle_kept(ticket, topic, position, publication);
            }
            Event::Repeated { ticket, topic, position } => {
                let policy = self.hub.policy_index(&topic);
                self.tell_appended(ticket, topic, position, policy);
            }
            Event::NotKept { ticket, refusal } => self.route_appended(ticket, Err(refusal)),
            Event::Unknown { ticket, refusal } => self.route_appended(ticket, Err(refusal)),
            Event::State { topic, head, .. } => self.hub.handle_head(&topic, &head),
            Event::Read { ticket, publications, .. } => self.handle_read(ticket, publications),
            Event::NewLife { ended, epoch, .. } => self.handle_epoch(&ended, epoch),
            // Only of logs that others write, too.
            Event::Through { .. } | Event::Cut { .. } | Event::Joined { .. } => {}
        }
    }

    fn handle_kept(
        &mut self,
        ticket: Option<Ticket>,
        topic: TopicName,
        position: Position,
        publication: Publication,
    ) {
        self.counters.publications += 1;
        let policy = self.hub.handle_kept(&topic, &position, publication, self.now);
        if let Some(ticket) = ticket {
            self.tell_appended(ticket, topic, position, policy);
        }
    }

    /// Takes a draft of a topic that is at home here.
    fn append_draft(&mut self, ticket: Ticket, draft: Draft) {
        let policy = self.hub.policy_index(&draft.topic);
        self.append(ticket, draft, policy);
    }

    /// Hands a draft to the backbone of this shard that its policy names.
    pub(crate) fn append(&mut self, ticket: Ticket, draft: Draft, policy: PolicyIndex) {
        if !self.hub.has_room_for_topic(&draft.topic) {
            let text = format!(
                "cannot publish to `{}`: the shard holds topics_per_shard_max topics already; \
                 use fewer topics, or raise the limit in the configuration",
                draft.topic
            );
            self.route_appended(ticket, Err(Refusal::new(Code::TooManyTopics, text)));
            return;
        }
        self.backbones.append(self.hub.policy(policy), ticket, draft, self.now);
    }
}
