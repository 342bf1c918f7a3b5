# Print the steps of an elastic run at which the number of slices changed: awk -f slice_changes.awk LOGFILE
/step=/ && /elastic_manager\.good_slice_count=/ {
  step = slices = ""
  for (i = 1; i <= NF; i++) {
    split($i, pair, "=")
    if (pair[1] == "step") step = pair[2]
    if (pair[1] == "elastic_manager.good_slice_count") slices = pair[2]
  }
  if (before != "" && slices != before)
    print "Step: " step ", Old Slice Count: " before ", New Slice Count: " slices
  before = slices
}
