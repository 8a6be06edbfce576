//! doctor
use crate::cli::DoctorArgs;
use crate::launch::exit::Ending;
pub(crate) fn run(_: &DoctorArgs) -> anyhow::Result<Ending> {
    Ok(Ending::Code(0))
}
pub(crate) fn probe_driver() -> anyhow::Result<()> {
    Ok(())
}
