//! `tidegate config`, and where a server's settings come from.

use server::config::{ConfigError, Sources, default_text, load, reference};

use crate::args::{ConfigArgs, ConfigVerb, SettingsArgs};
use crate::{Failure, Outcome, print_line};

pub(crate) fn config(args: &ConfigArgs) -> Outcome {
    match &args.verb {
        ConfigVerb::Default => print_line(default_text().trim_end()),
        ConfigVerb::Doc => print_line(reference().trim_end()),
        ConfigVerb::Show(settings) => {
            let shown = sources(settings, &settings.origins).and_then(|it| it.show());
            print_line(shown.map_err(bad)?.trim_end());
        }
        ConfigVerb::Check { file } => {
            load(file).map_err(bad)?;
            print_line(&format!("{}: correct", file.display()));
        }
    }
    Ok(())
}

/// A configuration that is wrong, as the program ends with it.
pub(crate) fn bad(error: ConfigError) -> (Failure, String) {
    (Failure::BadConfig, error.to_string())
}

/// All that says something of settings: the file, environment variables, flags; `origins` instead of those of the flags.
///
/// # Errors
/// A file cannot be read, or a variable is none.
pub(crate) fn sources(args: &SettingsArgs, origins: &[String]) -> Result<Sources, ConfigError> {
    let file = match &args.config {
        Some(file) => Sources::of_file(file)?,
        None => Sources::default(),
    };
    let mut all = file.with_variables(std::env::vars_os())?;
    if let Some(listen) = args.listen {
        all = all.with_flag("--listen", "server.listen", &listen.to_string().into());
    }
    if let Some(shards) = args.shards.filter(|count| *count > 0) {
        all = all.with_flag("--shards", "engine.shards", &i64::from(shards).into());
    }
    if let Some(level) = &args.log_level {
        all = all.with_flag("--log-level (TIDEGATE_LOG)", "log.level", &level.text.as_str().into());
    }
    Ok(all.with_origins(origins.iter().cloned()))
}
