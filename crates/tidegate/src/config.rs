//! `tidegate config`.

use server::config::{default_text, load, reference};

use crate::args::{ConfigArgs, ConfigVerb};
use crate::{Failure, Outcome, print_line};

pub(crate) fn config(args: &ConfigArgs) -> Outcome {
    match &args.verb {
        ConfigVerb::Default => print_line(default_text().trim_end()),
        ConfigVerb::Doc => print_line(reference().trim_end()),
        ConfigVerb::Check { file } => {
            load(file).map_err(|error| (Failure::BadConfig, error.to_string()))?;
            print_line(&format!("{}: correct", file.display()));
        }
    }
    Ok(())
}
