//! `tidegate store`.

use std::path::Path;

use backbone::OpenError;
use backbone::care::{self, Findings};
use model::Epoch;

use crate::args::{StoreArgs, StoreVerb};
use crate::{Failure, Outcome, print_line};

pub(crate) fn store(args: &StoreArgs) -> Outcome {
    match &args.verb {
        StoreVerb::Check { path } => check(path),
        StoreVerb::Repair { path } => repair(path),
        StoreVerb::Backup { path, copy } => {
            care::backup(path, copy).map_err(failed)?;
            say(format!("{}: a copy is in {}", path.display(), copy.display()))
        }
        StoreVerb::Restore { copy, path } => {
            care::restore(copy, path).map_err(failed)?;
            say(format!("{}: put back; the next start begins a new epoch", path.display()))
        }
        StoreVerb::Adopt { path } => {
            care::adopt(path).map_err(failed)?;
            say(format!("{}: it lives here now, and keeps its epoch", path.display()))
        }
    }
}

fn check(path: &Path) -> Outcome {
    let found = care::check(path).map_err(failed)?;
    tell(path, &found);
    match found.damage.len() {
        0 => Ok(()),
        count => {
            let text = format!(
                "{}: {count} damaged places; a start goes on without them and tells readers a gap",
                path.display()
            );
            Err((Failure::Other, text))
        }
    }
}

fn repair(path: &Path) -> Outcome {
    let new = Epoch::new(&server::new_epoch());
    tell(path, &care::repair(path, &new).map_err(failed)?);
    Ok(())
}

fn tell(path: &Path, found: &Findings) {
    for line in &found.damage {
        print_line(&format!("{}: {line}", path.display()));
    }
    let Findings { topics, records, .. } = found;
    print_line(&format!("{}: {topics} topics and {records} records are whole", path.display()));
}

fn say(line: String) -> Outcome {
    print_line(&line);
    Ok(())
}

fn failed(error: OpenError) -> (Failure, String) {
    (Failure::Other, error.to_string())
}
