module baseload/tctl

go 1.25.0

require github.com/temporalio/tctl v1.18.0
