module baseload/temporal

go 1.25.0

require github.com/temporalio/cli v1.5.1

require go.temporal.io/server v1.29.1 // indirect
